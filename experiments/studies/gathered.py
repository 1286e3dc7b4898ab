"""A study with what was simulated and what was published, point by point."""

from __future__ import annotations

import csv
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from experiments.fidelity.rows import Row
from experiments.studies.fitted import was_fitted
from experiments.studies.measured import published
from experiments.studies.points import Overrides, Point, points
from experiments.studies.study import Study
from simlora.sweeps.outcome import NOT_SIMULATED, RAN, Outcome


@dataclass(frozen=True)
class Gathered:
    """One point: what became of its run, and the published values by metric (none, one or several each).

    `fitted`: whether coefficients were fitted to the published run.
    """

    point: Point
    outcome: Outcome
    published: Mapping[str, Sequence[Any]]
    fitted: bool = False

    def published_one(self, metric: str) -> Any:
        """Return the published value, the median of several; None if there is none."""
        values = self.published.get(metric, ())
        return statistics.median(values) if len(values) > 1 else next(iter(values), None)


def gather(
    study: Study, outcomes: Mapping[Overrides, Outcome], measured: Sequence[Row] | None
) -> list[Gathered]:
    """Return all points of a study but those that it leaves out on purpose."""
    return [
        gather_one(study, point, outcomes[point.overrides], measured)
        for point in points(study)
        if not point.skip
    ]


def gather_one(study: Study, point: Point, outcome: Outcome, measured: Sequence[Row] | None) -> Gathered:
    """Return one point with what became of its run."""
    fitted = was_fitted(point.settings, outcome.summary)
    return Gathered(point, outcome, published(study, point, measured), fitted)


def complaints(gathered: Sequence[Gathered]) -> list[str]:
    """Return a sentence for each reason why points were not simulated."""
    reasons: dict[str, list[str]] = {}
    for one in gathered:
        if one.outcome.status == NOT_SIMULATED:
            where = f"{one.point.panel} {one.point.series} at {one.point.x}"
            reasons.setdefault(one.outcome.reason, []).append(where)
    return [f"{len(where)} runs, from {where[0]} on: {reason}" for reason, where in reasons.items()]


def write_csv(path: Path, study: Study, gathered: Sequence[Gathered]) -> None:
    """Write a row a point: where it is, simulated and published figures, and how to run it."""
    pairs = [(metric, f"{metric} published") for metric in study.metrics]
    names = [name for pair in pairs for name in pair]
    with path.open("w", encoding="utf-8", newline="") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(
            ["panel", "series", study.x.label, *names, "fitted", "beyond", "status", "reason", "overrides"]
        )
        for one in gathered:
            point, outcome = one.point, one.outcome
            cells = []
            for metric in study.metrics:
                value = outcome.figure(metric)
                cells += ["" if value is None else f"{value:.6g}", _cell(one.published_one(metric))]
            reason = "" if outcome.status == RAN else outcome.reason
            command = " ".join(point.overrides)
            place = (point.panel, point.series, point.x)
            fitted = str(one.fitted).lower()
            table.writerow([*place, *cells, fitted, point.beyond, outcome.status, reason, command])


def _cell(value: Any) -> str:
    return "" if value is None else f"{value:.6g}" if isinstance(value, int | float) else str(value)
