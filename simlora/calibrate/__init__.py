"""Derives calibrations for hardware and models that were not measured."""
