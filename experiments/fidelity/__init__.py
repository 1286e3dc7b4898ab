"""Simulates runs that others measured, and compares: `python -m experiments.fidelity`."""
