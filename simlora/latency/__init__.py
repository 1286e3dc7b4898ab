"""How long things take: linear models whose coefficients come from a calibration file."""
