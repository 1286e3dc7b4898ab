"""The scoreboard: what the papers claim, and what simlora says: `python -m experiments.claims`."""
