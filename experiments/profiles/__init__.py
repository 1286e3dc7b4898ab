"""Calibrations from profiles that other people measured: operators, attention, collectives, whole iterations."""
