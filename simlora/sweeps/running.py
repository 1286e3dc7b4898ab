"""Runs points, in parallel, each once, and those that were run before not again."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

from joblib import Parallel, delayed
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from simlora.api import simulate
from simlora.api.cache import Cache, open_cache
from simlora.core.errors import DoesNotFit, InputError
from simlora.sweeps.outcome import DOES_NOT_FIT, NOT_SIMULATED, RAN, Outcome, Overrides


def run_all(
    wanted: Iterable[Overrides], jobs: int = -1, shown: bool | None = None, cache: Cache | None = None
) -> dict[Overrides, Outcome]:
    """Return the outcome of every run, each simulated once. `shown`: a progress bar; None is on a terminal."""
    cache = open_cache() if cache is None else cache
    wanted = list(dict.fromkeys(wanted))
    found = {overrides: Outcome(**kept) for overrides in wanted if (kept := cache.get(overrides))}
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
