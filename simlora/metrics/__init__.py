"""Records of what happened in a run, written by the engine."""
