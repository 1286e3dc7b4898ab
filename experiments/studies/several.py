"""Points of studies with several seeds, and what was measured beside them."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean

from experiments.studies.points import Point, points, seeded
from experiments.studies.reading import check, listed, load
from experiments.studies.running import run_all
from experiments.studies.study import Study
from simlora.sweeps.outcome import NOT_SIMULATED, Outcome

Measured = Callable[[Point], Mapping[str, float]]
"""Returns the metrics that were measured of a point, by name."""


@dataclass(frozen=True)
class Several:
    """One point: what became of its runs, one a seed, and what was measured, by metric."""

    point: Point
    outcomes: Sequence[Outcome]
    measured: Mapping[str, float] = field(default_factory=dict)

    def figures(self, metric: str) -> list[float]:
        """Return the metric of each run that has it."""
        found = (outcome.figure(metric) for outcome in self.outcomes)
        return [figure for figure in found if figure is not None]

    @property
    def complaint(self) -> str:
        """Why it was not simulated; empty if it was."""
        return next((one.reason for one in self.outcomes if one.status == NOT_SIMULATED), "")


def read_seeds(path: Path) -> list[int]:
    """Return the seeds over which a paper's claims are judged; none: each run has that of its settings."""
    return listed(check(load(path), str(path), ("claims",), ("seeds",)).get("seeds", []))


def of_study(
    study: Study, seeds: Sequence[int], jobs: int = 1, measured: Measured | None = None
) -> list[Several]:
    """Return all points of a study but those that it leaves out on purpose. Runs what was not run before."""
    return of_points(points(study), seeds, jobs, measured)


def of_points(
    asked: Iterable[Point], seeds: Sequence[int], jobs: int = 1, measured: Measured | None = None
) -> list[Several]:
    """Return these points but those that their study leaves out on purpose. Runs what was not run before."""
    wanted = [point for point in asked if not point.skip]
    outcomes = run_all([run for point in wanted for run in runs(point, seeds)], jobs)
    return [
        Several(
            point,
            [outcomes[run.overrides] for run in runs(point, seeds)],
            measured(point) if measured else {},
        )
        for point in wanted
    ]


def runs(point: Point, seeds: Sequence[int]) -> list[Point]:
    """Return the runs of a point, one a seed."""
    return [seeded(point, seed) for seed in seeds]


def write_csv(path: Path, study: Study, found: Sequence[Several]) -> None:
    """Write a row a point: where it is, mean, least and most of the seeds and what was measured, and how to run it."""
    with path.open("w", encoding="utf-8", newline="") as file:
        table = csv.writer(file, lineterminator="\n")
        parts = ("mean", "least", "most", "measured")
        names = [f"{metric} {part}" for metric in study.metrics for part in parts]
        table.writerow(["panel", "series", study.x.label, *names, "seeds", "overrides"])
        for one in found:
            cells = [cell for metric in study.metrics for cell in _cells(one, metric)]
            place = (one.point.panel, one.point.series, one.point.x)
            table.writerow([*place, *cells, len(one.outcomes), " ".join(one.point.overrides)])


def _cells(one: Several, metric: str) -> list[object]:
    found, measured = one.figures(metric), one.measured.get(metric, "")
    return [fmean(found), min(found), max(found), measured] if found else ["", "", "", measured]
