"""Counts of a histogram, cheap to add to: prometheus_client's own takes several microseconds an observation."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence


class Tally:
    """How many values are at most each of the `bounds`, ascending, and their sum."""

    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = tuple(bounds)
        self.counts = [0] * (len(self.bounds) + 1)
        self.sum = 0.0

    def add(self, value: float) -> None:
        """Count a value."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value

    def add_all(self, other: Tally) -> None:
        """Count what another one has counted, whose bounds are the same."""
        for place, count in enumerate(other.counts):
            self.counts[place] += count
        self.sum += other.sum

    @property
    def count(self) -> int:
        """How many values were counted."""
        return sum(self.counts)

    def buckets(self) -> list[tuple[str, float]]:
        """Return the cumulated counts by upper bound, as Prometheus' text has them, +Inf last."""
        found: list[tuple[str, float]] = []
        total = 0
        for bound, count in zip((*self.bounds, float("inf")), self.counts, strict=True):
            total += count
            found.append(("+Inf" if bound == float("inf") else str(float(bound)), float(total)))
        return found

    def quantile(self, share: float) -> float:
        """Return the upper bound of the bucket in which a quantile lies; inf beyond the last; 0 without values."""
        wanted, total = share * self.count, 0
        if not wanted:
            return 0.0
        for bound, count in zip(self.bounds, self.counts, strict=False):
            total += count
            if total >= wanted:
                return bound
        return float("inf")
