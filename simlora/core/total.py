"""Sums whose bits do not depend on the version of Python."""

from __future__ import annotations

from collections.abc import Iterable


def total(values: Iterable[float]) -> float:
    """Return the sum, added from left to right: since Python 3.12 `sum` of floats makes up for rounding."""
    found = 0.0
    for value in values:
        found += value
    return found
