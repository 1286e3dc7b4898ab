"""A simulated replica whose iterations run on the device, beside the same replica simulated."""
