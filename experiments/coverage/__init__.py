"""How often labels and intervals are right, measured on models whose truth is known."""
