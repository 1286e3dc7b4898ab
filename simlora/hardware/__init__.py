"""What it runs on: model shapes, GPUs, links, and the token slots that are left for requests."""
