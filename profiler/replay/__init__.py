"""A real batch loop on the device, and the simulation of the same trace beside it."""
