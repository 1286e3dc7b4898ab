"""Colours of pictures on paper: those that the page has in its light theme."""

from __future__ import annotations

BLUE, TEAL, AMBER, INK, GRID = "#2b6cd4", "#0e8f7e", "#d08700", "#1b1d21", "#e2e3e1"
