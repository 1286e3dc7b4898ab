"""Runs the points of studies, in parallel, each once, and those that were run before not again."""

from __future__ import annotations

from collections.abc import Iterable

from experiments.studies.points import Point
from simlora.config.composing import choices
from simlora.sweeps import running
from simlora.sweeps.outcome import NOT_SIMULATED, Outcome, Overrides


def run_all(points: Iterable[Point], jobs: int = -1, shown: bool | None = None) -> dict[Overrides, Outcome]:
    """Return the outcome of every run that the points need. `shown`: a progress bar; None is on a terminal."""
    wanted = list(dict.fromkeys(point.overrides for point in points if not point.skip))
    known = {overrides: unknown_system(overrides) for overrides in wanted}
    found = running.run_all([overrides for overrides in wanted if not known[overrides]], jobs, shown)
    return found | {run: Outcome(NOT_SIMULATED, reason=why) for run, why in known.items() if why}


def unknown_system(overrides: Overrides) -> str:
    """Return a sentence if the system does not exist (yet); empty if it does."""
    name = dict(override.split("=", 1) for override in overrides).get("system", "slora")
    return "" if name in choices("system") else f"there is no system {name} yet"
