"""A study's points with several seeds, and what dLoRA's authors measured beside them."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean

from experiments.claims.claim import read_seeds
from experiments.claims.spots import seeded
from experiments.dlora.measured import Measured
from experiments.studies.points import Overrides, Point, points
from experiments.studies.running import run_all
from experiments.studies.study import Study
from simlora.sweeps.outcome import NOT_SIMULATED, Outcome

FOLDER = Path(__file__).parent
SEEDS = read_seeds(FOLDER / "claims.yaml")
"""Those over which the claims are judged: a curve is their mean, the band around it from the least to the most."""


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


def of_study(study: Study, jobs: int = 1, measured: Measured | None = None) -> list[Several]:
    """Return all points of a study but those that it leaves out on purpose. Runs what was not run before."""
    wanted = [point for point in points(study) if not point.skip]
    outcomes = run_all([run for point in wanted for run in runs(point)], jobs)
    return list(_gathered(wanted, outcomes, measured or Measured({})))


def runs(point: Point) -> list[Point]:
    """Return the runs of a point."""
    return [seeded(point, seed) for seed in SEEDS]


def _gathered(
    wanted: Iterable[Point], outcomes: Mapping[Overrides, Outcome], measured: Measured
) -> Iterator[Several]:
    for point in wanted:
        yield Several(point, [outcomes[run.overrides] for run in runs(point)], measured.of(point))


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
