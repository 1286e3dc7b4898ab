"""When to merge and when to unmerge: two thresholds that adapt to which would have been faster."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from mypy_extensions import mypyc_attr

CONSTANTS = ("paper", "released")


@mypyc_attr(allow_interpreted_subclasses=True)
@dataclass(kw_only=True)
class Thresholds:
    """Adaptive threshold tuning. Source: dLoRA (OSDI'24) §4.2, Algorithm 2, which prints it for `alpha` alone.

    A period lasts from one break point to the next. Break points are a switch, a change of the adapter with the most
    requests, and `every` iterations. After an unmerged period, `alpha` falls by `decrement` if merging at its start
    would have served more requests per second, including the switch, and otherwise grows by `factor`. After a merged
    period, `beta` grows by `factor` if unmerging at its start would have served more, and otherwise falls by
    `decrement` ("similar", in the paper). As in the released code, `beta` stays below `alpha`. `alpha` never exceeds
    the larger of 1 and its start: without that bound, two minutes of mixed traffic would raise it tenfold for every
    later burst.

    With `constants` released, as in the code: `alpha` is tuned after merged periods and `beta` after unmerged ones,
    where `beta` rises by `decrement` and falls by `factor`. The switch is charged to the mode that was in use, and to
    merging once for every change of the adapter with the most requests. Only switches end a period. A ratio of exactly
    `alpha` merges.

    An iteration takes `merged_s` or `unmerged_s` whatever its batch, and a switch `switch_s`, as in the released code.
    """

    constants: str
    merged_s: float
    unmerged_s: float
    switch_s: float
    every: int
    decrement: float
    factor: float
    alpha: float
    beta: float

    def __post_init__(self) -> None:
        self.released = self.constants == "released"
        self.most = inf if self.released else max(1.0, self.alpha)
        self.merged = False  # the mode of the period
        self._batch = self._turn = 0  # requests of each coming iteration, if merged and if fcfs
        self._begin()

    def _begin(self) -> None:
        self.iterations = self.changes = 0
        self._batches = self._turns = 0  # requests over all its iterations

    def merges(self, ratio: float) -> bool:
        """Whether to merge an adapter; `ratio` is its requests over those of the FCFS batch."""
        return ratio >= self.alpha if self.released else ratio > self.alpha

    def stays(self, ratio: float) -> bool:
        """Whether to stay merged; `ratio` as in `merges`."""
        return ratio >= self.beta

    def stands(self, merged: bool, batch: int, turn: int) -> None:
        """Set the coming iterations: their mode, and how many requests each has merged (`batch`) or FCFS (`turn`)."""
        self.merged, self._batch, self._turn = merged, batch, turn

    def passed(self, iterations: int) -> None:
        """Count iterations that ran as last set."""
        if self._batch:
            self.iterations += iterations
            self._batches += self._batch * iterations
            self._turns += self._turn * iterations

    @property
    def left(self) -> float:
        """Iterations until the next break point that is known in advance."""
        return inf if self.released else self.every - self.iterations

    def leader_changes(self) -> bool:
        """Note that another adapter has the most requests; return whether a threshold was tuned."""
        if self.released:
            self.changes += 1
            return False
        return self.tune()

    def throughputs(self) -> tuple[float, float]:
        """Return the period's requests per second if merged, and if unmerged."""
        merged_s, unmerged_s = self.iterations * self.merged_s, self.iterations * self.unmerged_s
        if self.merged == self.released:
            merged_s += self.switch_s
        else:
            unmerged_s += self.switch_s
        if self.released and not self.merged:
            merged_s += self.switch_s * self.changes
        return self._batches / merged_s, self._turns / unmerged_s

    def tune(self) -> bool:
        """End the period at a break point and tune a threshold; return False if the period had no iterations."""
        if not self.iterations:
            self.changes = 0
            return False
        merged, unmerged = self.throughputs()
        self._begin()
        if self.merged == self.released:
            if merged <= unmerged:
                self.alpha = min(self.alpha * self.factor, self.most)
            elif self.alpha - self.decrement > self.beta:
                self.alpha -= self.decrement
        elif self.released:
            if merged > unmerged:
                self.beta /= self.factor
            elif self.beta + self.decrement < self.alpha:
                self.beta += self.decrement
        elif unmerged <= merged:
            self.beta = max(self.beta - self.decrement, 0.0)
        elif self.beta * self.factor < self.alpha:
            self.beta *= self.factor
        return True
