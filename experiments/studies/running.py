"""Runs the points of studies, in parallel, each once, and those that were run before not again."""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from experiments.studies.points import Point
from simlora.api import simulate
from simlora.api.cache import open_cache
from simlora.api.fingerprint import source
from simlora.config.composing import choices
from simlora.core.errors import InputError
from simlora.results.result import Result
from simlora.sweeps import running
from simlora.sweeps.outcome import NOT_SIMULATED, RAN, Outcome, Overrides


@dataclass
class Watch:
    """The points that were asked for meanwhile, in the order in which they were, and the outcomes of their runs."""

    jobs: int = -1
    points: dict[tuple[str, Overrides], Point] = field(default_factory=dict)
    outcomes: dict[Overrides, Outcome] = field(default_factory=dict)


_watches: list[Watch] = []
_changes: list[Callable[[Point], Point]] = []


@contextmanager
def watched(jobs: int = -1) -> Iterator[Watch]:
    """Give what every run_all looks at meanwhile, also one inside a function that only returns a number.

    Within the outermost a run is read from disk once, and `jobs` are what a run_all uses that asks for one a core.
    """
    watch = Watch(jobs)
    _watches.append(watch)
    try:
        yield watch
    finally:
        _watches.pop()


@contextmanager
def under(change: Callable[[Point], Point]) -> Iterator[None]:
    """Run every point as it is changed, meanwhile; outcomes still go by the point as it is asked for."""
    global _watches, _changes
    outer = _watches, _changes
    _watches, _changes = [], [change]
    try:
        yield
    finally:
        _watches, _changes = outer


def run_all(points: Iterable[Point], jobs: int = -1, shown: bool | None = None) -> dict[Overrides, Outcome]:
    """Return the outcome of every run that the points need. `shown`: a progress bar; None is on a terminal."""
    asked = {(point.study, point.overrides): point for point in points if not point.skip}
    wanted = {point.overrides: point for point in asked.values()}
    known = _watches[0].outcomes if _watches else {}
    new: dict[Overrides, Overrides] = {}
    for point in asked.values():
        if point.overrides not in known:
            run = changed(point)
            assert new.setdefault(point.overrides, run) == run, f"{point.key} is changed in two ways"
    simulated = _simulated(
        [*dict.fromkeys(new.values())], _watches[0].jobs if _watches and jobs == -1 else jobs, shown
    )
    found = {
        overrides: known[overrides] if overrides in known else simulated[new[overrides]]
        for overrides in wanted
    }
    for watch in _watches:
        watch.points |= asked
        watch.outcomes |= found
    return found


class NoNumberError(InputError, LookupError):
    """There is no simulated number: it was not simulated, does not fit the memory, or what was simulated has none."""

    def __init__(self, message: str, status: str = RAN) -> None:
        super().__init__(message)
        self.status = status


def figure_of(outcomes: Mapping[Overrides, Outcome], point: Point, metric: str) -> float:
    """Return a metric of a point's run. Raises NoNumberError, with the point and the reason, where there is none."""
    outcome = outcomes[point.overrides]
    found = outcome.figure(metric)
    if found is None:
        reason = outcome.reason or "no request finished"
        raise NoNumberError(f"{point.series} ({point.panel}) at {point.x}: {reason}", outcome.status)
    return found


def changed(point: Point) -> Overrides:
    """Return the overrides with which a point is run here: its own, or those that `under` makes of them."""
    for change in _changes:
        point = change(point)
    return point.overrides


def _simulated(wanted: Sequence[Overrides], jobs: int, shown: bool | None) -> dict[Overrides, Outcome]:
    """Return the outcomes of runs; those of a system that does not exist (yet) are not simulated."""
    systems = {run: dict(one.split("=", 1) for one in run).get("system", "slora") for run in wanted}
    have = choices("system")
    found = running.run_all([run for run in wanted if systems[run] in have], jobs, shown)
    return found | {
        run: Outcome(NOT_SIMULATED, reason=f"there is no system {name} yet")
        for run, name in systems.items()
        if name not in have
    }


Read = Callable[[Result], Any]
"""Returns plain values, such as a list of numbers."""


def of_run(point: Point, read: Read) -> Any:
    """Return what a function reads from a run's tables. Simulates, unless it did for the same function.

    For settings that name no files but those named after what they contain: neither what is in a file, nor what the
    function calls, is part of the name.
    """
    overrides = changed(point)
    text = hashlib.sha256(inspect.getsource(read).encode()).hexdigest()
    question = ["of a run's tables", read.__qualname__, text, sorted(overrides)]
    return kept(question, lambda: read(simulate(list(overrides))))


def kept(question: Any, find: Callable[[], Any]) -> Any:
    """Return what is kept under a `question` of plain values, or find and keep it.

    The question says all that it depends on but simlora's own files, whose hash the cache adds. Where these change
    while it is found, it is not kept.
    """
    cache = open_cache()
    path = cache.named(question)
    found = cache.read(path, "question", question, "found")
    if found is None:
        found = find()
        if source() == cache.source:
            cache.write(path, {"question": question, "found": found})
    return found
