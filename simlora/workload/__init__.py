"""What arrives: every workload is a small class with `build(seed) -> Trace`."""
