"""Latency models: linear, with coefficients from a calibration file."""
