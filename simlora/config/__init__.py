"""The border: Hydra's configuration comes in, plain objects and plain sentences go out."""
