"""Runs points, in parallel, each once, and those that were run before not again."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any

from joblib import Parallel, delayed
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from experiments.studies.cache import Cache, open_cache
from experiments.studies.metrics import figure
from experiments.studies.points import Overrides, Point
from simlora.api import simulate
from simlora.config.composing import choices
from simlora.core.errors import DoesNotFit, InputError

RAN, DOES_NOT_FIT, NOT_SIMULATED = "ran", "does not fit", "not simulated"


@dataclass(frozen=True)
class Outcome:
    """What became of a run: its summary, or in `reason` why there is none. `seconds`: what simulating it took."""

    status: str
    summary: Mapping[str, Any] = field(default_factory=dict)
    reason: str = ""
    seconds: float = 0.0

    def figure(self, metric: str) -> float | None:
        """Return a figure of the run; None if it did not run, or has none."""
        return figure(self.summary, metric) if self.status == RAN else None


def run_all(points: Iterable[Point], jobs: int = -1, shown: bool | None = None) -> dict[Overrides, Outcome]:
    """Return the outcome of every run that the points need. `shown`: a progress bar; None is on a terminal."""
    cache = open_cache()
    wanted = list(dict.fromkeys(point.overrides for point in points if not point.skip))
    found = {overrides: outcome for overrides in wanted if (outcome := _at_once(overrides, cache))}
    missing = [overrides for overrides in wanted if overrides not in found]
    with _bar(len(wanted), len(found), shown) as advance:
        for overrides, outcome in _simulated(missing, cache, jobs):
            found[overrides] = outcome
            advance()
    return found


def _simulated(missing: Sequence[Overrides], cache: Cache, jobs: int) -> Iterator[tuple[Overrides, Outcome]]:
    if missing:
        pool = Parallel(n_jobs=min(jobs, len(missing)), return_as="generator_unordered")
        yield from pool(delayed(_run)(overrides, cache) for overrides in missing)


def _run(overrides: Overrides, cache: Cache) -> tuple[Overrides, Outcome]:
    return overrides, run(overrides, cache)


def _at_once(overrides: Overrides, cache: Cache) -> Outcome | None:
    """Return what is known of a run without simulating it: that it was kept, or that it cannot be."""
    if unknown := unknown_system(overrides):
        return Outcome(NOT_SIMULATED, reason=unknown)
    kept = cache.get(overrides)
    return Outcome(**kept) if kept else None


def run(overrides: Overrides, cache: Cache) -> Outcome:
    """Simulate and keep one run. What simlora refuses is an outcome too, its sentence the reason."""
    started = time.perf_counter()
    try:
        result = simulate(overrides)
    except DoesNotFit as error:
        return Outcome(DOES_NOT_FIT, reason=str(error))
    except InputError as error:
        return Outcome(NOT_SIMULATED, reason=str(error))
    outcome = Outcome(RAN, result.summary, seconds=time.perf_counter() - started)
    cache.put(overrides, asdict(outcome), result.config)
    return outcome


def unknown_system(overrides: Overrides) -> str:
    """Return a sentence if the system does not exist (yet); empty if it does."""
    name = dict(override.split("=", 1) for override in overrides).get("system", "slora")
    return "" if name in choices("system") else f"there is no system {name} yet"


@contextmanager
def _bar(total: int, done: int, shown: bool | None) -> Iterator[Any]:
    """Give a function to be called for every run that has ended."""
    if not (sys.stderr.isatty() if shown is None else shown):
        yield lambda: None
        return
    columns = (TextColumn("simulating"), BarColumn(), MofNCompleteColumn(), TextColumn("runs"))
    with Progress(*columns, TimeRemainingColumn(), console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("simulating", total=total, completed=done)
        yield lambda: progress.advance(task)
