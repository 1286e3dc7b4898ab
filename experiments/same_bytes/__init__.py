"""Random scenarios, simulated by this checkout and by one of an older commit, to the same bytes or not."""
