"""FastLibra: its NPU's calibrations."""
