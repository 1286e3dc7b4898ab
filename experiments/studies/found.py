"""Points of studies with what became of their runs, one or one a seed, and what was published beside them."""

from __future__ import annotations

import csv
import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

from experiments.studies.measured import was_fitted
from experiments.studies.metrics import METRICS
from experiments.studies.points import Point, points, seeded
from experiments.studies.running import run_all
from experiments.studies.study import Study
from simlora.sweeps.outcome import NOT_SIMULATED, RAN, Outcome
from simlora.sweeps.statistics import interval

Published = Callable[[Point], Mapping[str, Sequence[Any]]]
"""Returns the published values of a point, by metric: none, one or several each."""


@dataclass(frozen=True)
class Found:
    """One point: what became of its runs, one a seed, and the published values by metric."""

    point: Point
    outcomes: Sequence[Outcome]
    published: Mapping[str, Sequence[Any]] = field(default_factory=dict)

    def figures(self, metric: str) -> list[float]:
        """Return the metric of each run that has it."""
        found = (outcome.figure(metric) for outcome in self.outcomes)
        return [figure for figure in found if figure is not None]

    def published_one(self, metric: str) -> Any:
        """Return the published value, the median of several; None if there is none."""
        values = self.published.get(metric, ())
        return statistics.median(values) if len(values) > 1 else next(iter(values), None)

    @property
    def fitted(self) -> bool:
        """Whether coefficients were fitted to the published run."""
        return was_fitted(self.point.settings, self.outcomes[0].summary)

    def has(self, status: str) -> bool:
        """Whether one of its runs came to this status."""
        return any(outcome.status == status for outcome in self.outcomes)


def of_points(
    asked: Iterable[Point], seeds: Sequence[int] = (), jobs: int = -1, published: Published | None = None
) -> list[Found]:
    """Return these points but those that their study leaves out on purpose. Runs what was not run before.

    Without seeds each is one run, with the seed of its settings.
    """
    wanted = [point for point in asked if not point.skip]
    outcomes = run_all([run for point in wanted for run in runs(point, seeds)], jobs)
    return [
        Found(
            point,
            [outcomes[run.overrides] for run in runs(point, seeds)],
            published(point) if published else {},
        )
        for point in wanted
    ]


def of_study(study: Study, seeds: Sequence[int], jobs: int = -1) -> list[Found]:
    """Return all points of a study but those that it leaves out on purpose. Runs what was not run before."""
    return of_points(points(study), seeds, jobs)


def runs(point: Point, seeds: Sequence[int]) -> list[Point]:
    """Return the runs of a point, one a seed; itself if there are none."""
    return [seeded(point, seed) for seed in seeds] or [point]


def complaints(found: Sequence[Found]) -> list[str]:
    """Return a sentence for each reason why points were not simulated."""
    reasons: dict[str, list[str]] = {}
    for one in found:
        for reason in {outcome.reason for outcome in one.outcomes if outcome.status == NOT_SIMULATED}:
            where = f"{one.point.panel} {one.point.series} at {one.point.x}"
            reasons.setdefault(reason, []).append(where)
    return [f"{len(where)} runs, from {where[0]} on: {reason}" for reason, where in reasons.items()]


def written(path: Path, head: Sequence[object], rows: Iterable[Sequence[object]]) -> None:
    """Write a table as CSV."""
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([head, *rows])


def write_csv(path: Path, study: Study, found: Sequence[Found], seeds: bool = False) -> None:
    """Write a row a point: where it is, simulated and published figures, and how to run it.

    Of several seeds the simulated ones are mean, least and most.
    """
    parts = [" mean", " least", " most", " measured"] if seeds else ["", " published"]
    tail = ["seeds"] if seeds else ["fitted", "beyond", "status", "reason"]
    names = [f"{metric}{part}" for metric in study.metrics for part in parts]
    rows = []
    for one in found:
        cells_of = _of_seeds if seeds else _of_one
        figures = (cell for metric in study.metrics for cell in cells_of(one, metric))
        first = one.outcomes[0]
        reason = "" if first.status == RAN else first.reason
        told = (
            [len(one.outcomes)]
            if seeds
            else [str(one.fitted).lower(), one.point.beyond, first.status, reason]
        )
        rows.append([*one.point.key[1:], *figures, *told, " ".join(one.point.overrides)])
    written(path, ["panel", "series", study.x.label, *names, *tail, "overrides"], rows)


def _of_one(one: Found, metric: str) -> list[object]:
    figures = one.outcomes[0].figure(metric), one.published_one(metric)
    return [f"{each:.6g}" if isinstance(each, int | float) else each for each in figures]


def _of_seeds(one: Found, metric: str) -> list[object]:
    found, (measured, *_) = one.figures(metric), one.published.get(metric) or [""]
    return [fmean(found), min(found), max(found), measured] if found else ["", "", "", measured]


class Mean(NamedTuple):
    """A metric at one point: the mean over seeds, and the ends of its 95 % interval."""

    mean: float
    low: float
    high: float

    def __str__(self) -> str:
        if math.isnan(self.low):
            return f"{self.mean:.4g}"
        return f"{self.mean:.4g} ± {(self.high - self.low) / 2:.2g}"


Means = Mapping[tuple[str, str, Any, str], Mean]
"""By panel, series, x and metric."""


def means(study: Study, own: Sequence[Found]) -> Means:
    """Return the mean and the interval over seeds of every metric of every point that was simulated."""
    return {
        (one.point.panel, one.point.series, one.point.x, metric): Mean(fmean(had), *interval(had))
        for one in own
        for metric in study.metrics
        if (had := one.figures(metric))
    }


def differences(own: Sequence[Found], metric: str) -> Means:
    """Return by how much a metric is above that of the x with the least mean, in the same panel and series.

    Seed by seed, with the same requests: the interval is of the mean of these differences, and NaN at that x.
    """
    found: dict[tuple[str, str, Any, str], Mean] = {}
    for panel, series in dict.fromkeys((one.point.panel, one.point.series) for one in own):
        row = [one for one in own if (one.point.panel, one.point.series) == (panel, series)]
        whole = [one for one in row if len(one.figures(metric)) == len(one.outcomes)]
        if not whole:
            continue
        least = min(whole, key=lambda one: fmean(one.figures(metric)))
        for one in whole:
            pairs = zip(one.figures(metric), least.figures(metric), strict=True)
            apart = [its - lowest for its, lowest in pairs]
            ends = interval(apart) if one is not least else (math.nan, math.nan)
            found[panel, series, one.point.x, metric] = Mean(fmean(apart), *ends)
    return found


def every_x(study: Study) -> Sequence[Any]:
    """Return all values of x, of whichever panel."""
    return list(dict.fromkeys(x for panel in study.panels for x in panel.x))


def table(study: Study, found: Means, metric: str, of: str = "") -> str:
    """Return a metric as aligned text, a line a panel and series, a column a value of x; `of` heads it."""
    drawn = METRICS[metric].drawn
    head = ["", *(str(x) for x in every_x(study))]
    rows = [head]
    for panel in study.panels:
        for series in study.series:
            cells = [found.get((panel.name, series.name, x, metric)) for x in every_x(study)]
            if any(cells):
                name = series.title if len(study.panels) == 1 else f"{panel.title}: {series.title}"
                shown = [
                    "" if cell is None else str(Mean(*(drawn * part for part in cell))) for cell in cells
                ]
                rows.append([name, *shown])
    widths = [max(len(row[column]) for row in rows) for column in range(len(head))]
    lines = [
        "  "
        + "  ".join(
            cell.rjust(width) if i else cell.ljust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    ]
    title = f"  {METRICS[metric].label}{of} over {study.x.label}"
    return "\n".join([title, *(line.rstrip() for line in lines)])


def write_means(path: Path, study: Study, found: Means) -> None:
    """Write a row a point and metric: mean, low, high."""
    head = ["panel", "series", study.x.key, "metric", "mean", "low", "high"]
    cells = {key: ("" if math.isnan(part) else part for part in mean) for key, mean in found.items()}
    written(path, head, ([*key, *own] for key, own in cells.items()))
