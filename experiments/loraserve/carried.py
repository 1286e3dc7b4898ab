"""Searches for the highest rate that servers carry: at which the 95th percentile of TTFT is within the SLO of 10 s.

The runs are points of a study, so that its figure has those that a search looked at.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass

from experiments.studies.points import Point, point
from experiments.studies.running import run_all
from experiments.studies.study import Study
from simlora.core.errors import InputError

METRIC, SLO_S = "ttft_s.p95", 10.0
STRIDE = 8
"""Steps from one rate to the next, until one is within the SLO and one is not."""


@dataclass(frozen=True)
class Servers:
    """A curve of a study over the rate; a search begins at `start_rps` and ends `step_rps` below the first failure."""

    study: Study
    panel: str
    series: str
    start_rps: int
    step_rps: int = 1

    def at(self, steps: int) -> Point:
        """Return the run at so many steps."""
        panel, series = self.study.panel(self.panel), self.study.series_named(self.series)
        return point(self.study, panel, series, steps * self.step_rps)


def highest_rps(servers: Sequence[Servers], jobs: int = -1) -> list[float]:
    """Return the highest rate of each; all searches look at their next rate at once.

    Assumed is that what a lower rate misses a higher one misses too. Raises InputError if the lowest rate does.
    """
    searches = [_search(round(each.start_rps / each.step_rps)) for each in servers]
    asked = {index: next(search) for index, search in enumerate(searches)}
    found = [0.0] * len(servers)
    while asked:
        runs = {index: servers[index].at(steps) for index, steps in asked.items()}
        outcomes = run_all(runs.values(), jobs)
        for index, run in runs.items():
            outcome = outcomes[run.overrides]
            if outcome.reason:
                raise InputError(f"{run.series} ({run.panel}) at {run.x}: {outcome.reason}")
            value = outcome.figure(METRIC)
            try:
                asked[index] = searches[index].send(value is not None and value <= SLO_S)
            except StopIteration as end:
                del asked[index]
                found[index] = float(end.value * servers[index].step_rps)
    return found


def _search(start: int) -> Generator[int, bool, int]:
    """Yield what to try, and be sent whether it is within the SLO; return the highest that is."""
    low = high = start
    if (yield start):
        while (yield (high := low + STRIDE)):
            low = high
    else:
        while not (yield (low := _lower(high))):
            high = low
    while high - low > 1:
        middle = (low + high) // 2
        if (yield middle):
            low = middle
        else:
            high = middle
    return low


def _lower(high: int) -> int:
    if high == 1:
        raise InputError(f"the SLO, a P95 of TTFT of {SLO_S:g} s, is missed even at the lowest rate")
    return max(high - STRIDE, 1)
