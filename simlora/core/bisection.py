"""Bisection for the highest value that passes a test whose outcome changes from pass to fail once."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

DIGITS = 6
"""Significant digits of the values to test, because they are written in commands."""


@dataclass(frozen=True)
class Bracket:
    """Bounds of the highest value that passes: `low` passed and `high` failed; None: not known yet.

    `guess` is tested first, then it is doubled or halved within `least` and `most` until both bounds are known. Then
    the geometric mean of the bounds is tested, or with `whole` their midpoint, until they are `precision` apart, or
    neighbours. A `step` below 2 is for a guess that is nearly right: the first step away from it is by that factor, and
    each further step cubes the distance from it, until steps double and halve.
    A bracket is immutable; `told` returns the next one. The values it may test next are therefore known before a
    result is (`ahead`), and the same results lead to the same bracket in any order.
    """

    guess: float
    least: float
    most: float
    precision: float = 0.01
    whole: bool = False
    step: float = 2.0
    low: float | None = None
    high: float | None = None

    def __post_init__(self) -> None:
        assert self.least <= self.guess <= self.most, "the guess lies outside"
        assert self.whole or self.precision >= 10.0 ** (2 - DIGITS), "finer than values are rounded"
        assert 1.0 < self.step <= 2.0, "steps go away from the guess, and double at most"

    @property
    def ask(self) -> float | None:
        """The value to test next; None when the search is complete."""
        if self.low is None and self.high is None:
            return self.guess
        if self.high is None:
            return None if self.low == self.most else min(self._away(self.low or 0.0, up=True), self.most)
        if self.low is None:
            return None if self.high == self.least else max(self._away(self.high, up=False), self.least)
        if self.whole:
            return None if self.high - self.low <= 1 else (self.low + self.high) // 2
        return (
            None
            if self.high <= self.low * (1.0 + self.precision)
            else self._tidy(math.sqrt(self.low * self.high))
        )

    def told(self, value: float, passes: bool) -> Bracket:
        """Return the bracket after the test of `value`."""
        return replace(self, low=value) if passes else replace(self, high=value)

    def ahead(self, count: int) -> list[float]:
        """Return up to `count` values that may be tested: the next one, then those after either outcome.

        None is more than twice the next: values far above it cost the most and are the least likely.
        """
        found: list[float] = []
        brackets = [self]
        most = math.inf if self.ask is None else 2.0 * self.ask
        while brackets and len(found) < count:
            bracket = brackets.pop(0)
            value = bracket.ask
            if value is not None and value <= most:
                if value not in found:
                    found.append(value)
                brackets += [bracket.told(value, True), bracket.told(value, False)]
        return found

    def _away(self, value: float, up: bool) -> float:
        """Return the next value farther from the guess."""
        distance = max(value / self.guess, self.guess / value)
        factor = min(max(self.step, distance**2), 2.0)
        found = self._tidy(value * factor if up else value / factor)
        if self.whole:
            return max(found, value + 1) if up else min(found, value - 1)
        return found

    def _tidy(self, value: float) -> float:
        if self.whole:
            return math.floor(value)
        return float(f"{value:.{DIGITS}g}")
