"""When to merge and when to go back: two thresholds that follow what would have been faster."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

CONSTANTS = ("paper", "released")


@dataclass(kw_only=True)
class Thresholds:
    """Adaptive threshold tuning. Source: dLoRA (OSDI'24) §4.2, Algorithm 2, which prints it for `alpha` alone.

    A period lasts from one break point to the next: a switch, another adapter with the most requests, or `every`
    iterations. After one that was not merged `alpha` falls by `decrement` if merging at its start would have brought
    more requests a second, the switch included, and else grows by `factor`. After a merged one `beta` grows by `factor`
    if going back at its start would have, and else falls: "similar", says the paper. As in the released code `beta`
    stays below `alpha`; and `alpha` never grows beyond 1, or where it starts: without that bound two minutes of
    mixed traffic would raise it tenfold for every later burst.

    `constants` released, the code: it tunes `alpha` after merged periods and `beta` after the others, by the same two
    steps the other way round for `beta`; it charges the switch to the way that was taken, and to merging once for every
    adapter that had the most requests meanwhile; only switches end a period; and at `alpha` exactly it merges.

    Iterations take `merged_s` and `unmerged_s` whatever their batch, a switch `switch_s`, as in the released code.
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
        self.merged = False  # how the period is
        self._batch = self._turn = 0  # requests of its coming iterations, if merged and in turn
        self._begin()

    def _begin(self) -> None:
        self.iterations = self.changes = 0
        self._batches = self._turns = 0  # requests of all its iterations

    def merges(self, ratio: float) -> bool:
        """Whether to merge an adapter with so many requests for one of the batch in turn."""
        return ratio >= self.alpha if self.released else ratio > self.alpha

    def stays(self, ratio: float) -> bool:
        """Whether to stay merged."""
        return ratio >= self.beta

    def stands(self, merged: bool, batch: int, turn: int) -> None:
        """From now on each iteration is merged or not, of `batch` requests merged and of `turn` in order of arrival."""
        self.merged, self._batch, self._turn = merged, batch, turn

    def passed(self, iterations: int) -> None:
        """So many iterations were as it stands."""
        if self._batch:
            self.iterations += iterations
            self._batches += self._batch * iterations
            self._turns += self._turn * iterations

    @property
    def left(self) -> float:
        """Iterations until the next break point, as far as it is known."""
        return inf if self.released else self.every - self.iterations

    def leader_changes(self) -> bool:
        """Another adapter has the most requests. Return whether a threshold was tuned."""
        if self.released:
            self.changes += 1
            return False
        return self.tune()

    def throughputs(self) -> tuple[float, float]:
        """Requests per second of the period's iterations: merged, and not merged."""
        merged_s, unmerged_s = self.iterations * self.merged_s, self.iterations * self.unmerged_s
        if self.merged == self.released:
            merged_s += self.switch_s
        else:
            unmerged_s += self.switch_s
        if self.released and not self.merged:
            merged_s += self.switch_s * self.changes
        return self._batches / merged_s, self._turns / unmerged_s

    def tune(self) -> bool:
        """A break point: learn from the period, and begin another one. Return whether there was anything to learn."""
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
