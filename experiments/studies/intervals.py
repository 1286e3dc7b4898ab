"""The mean of every metric of a study over seeds, with its interval, as a table and as CSV."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

from experiments.studies.found import Found, written
from experiments.studies.metrics import METRICS
from experiments.studies.study import Study
from simlora.sweeps.statistics import interval


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
