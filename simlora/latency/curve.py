"""Seconds over a count, as points with straight lines between them."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from typing import Any

import numpy as np


class Curve:
    """Straight between the points, level before the first, and as between the last two beyond them.

    Level before the first: what a step costs at least is read once, whether for one sequence or for none.
    """

    __slots__ = ("_counts", "_seconds")

    def __init__(self, points: Mapping[int, float]) -> None:
        """Take at least two points, by count."""
        assert len(points) >= 2, "a line takes two points"
        self._counts: list[float] = [float(count) for count in sorted(points)]
        self._seconds: list[float] = [points[count] for count in sorted(points)]

    @property
    def least_s(self) -> float:
        """The seconds at the first point."""
        return self._seconds[0]

    @property
    def last(self) -> float:
        """The count of the last point."""
        return self._counts[-1]

    def at(self, count: float) -> float:
        """Return the seconds at a count."""
        counts, seconds = self._counts, self._seconds
        if count <= counts[0]:
            return seconds[0]
        after = min(bisect_right(counts, count), len(counts) - 1)
        before_s, span = seconds[after - 1], counts[after] - counts[after - 1]
        return before_s + (count - counts[after - 1]) * ((seconds[after] - before_s) / span)

    def at_all(self, counts: Any) -> Any:
        """Return the seconds at counts [any shape]."""
        found = [self.at(count) for count in np.asarray(counts, dtype=np.float64).ravel().tolist()]
        return np.array(found).reshape(np.shape(counts))
