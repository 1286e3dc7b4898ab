"""How fast the simulator is: `python -m experiments.speed`."""
