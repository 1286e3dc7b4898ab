"""Single numbers of studies, and curves of them: what claims are about."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from experiments.studies.metrics import METRICS
from experiments.studies.points import Point, point
from experiments.studies.reading import known
from experiments.studies.study import Study
from simlora.core.errors import InputError


@dataclass(frozen=True)
class Curve:
    """One metric of one series of a study, over x."""

    study: Study
    panel: str
    series: str
    metric: str

    @property
    def x(self) -> Sequence[Any]:
        """All values of x of its panel."""
        return self.study.panel(self.panel).x

    def at(self, x: Any) -> Spot:
        """Return the curve's point at x."""
        known(x, self.x, f"{self.study.name} {self.panel}: x")
        panel, series = self.study.panel(self.panel), self.study.series_named(self.series)
        return Spot(point(self.study, panel, series, x), self.metric)

    def __str__(self) -> str:
        return f"{self.metric} of {self.series} ({self.panel})"


@dataclass(frozen=True)
class Spot:
    """One metric of one run of a study."""

    point: Point
    metric: str

    def __str__(self) -> str:
        return f"{self.metric} of {self.point.series} ({self.point.panel}) at {self.point.x}"


def read_spot(text: Any, place: str, studies: Mapping[str, Study]) -> Spot:
    """Read `table_3 S1 slora 5 throughput_rps`: study, panel, series, x, metric."""
    parts = str(text).split()
    if len(parts) != 5:
        raise InputError(f"{place}: {text!r} must be a study, a panel, a series, a value of x and a metric")
    study, panel, series, x, metric = parts
    curve = read_curve(f"{study} {panel} {series} {metric}", place, studies)
    by_name = {str(value): value for value in curve.x}
    return curve.at(by_name[known(x, by_name, f"{place}: x")])


def read_curve(text: Any, place: str, studies: Mapping[str, Study]) -> Curve:
    """Read `figure_5 a10g_S1 slora throughput_rps`: study, panel, series, metric."""
    parts = str(text).split()
    if len(parts) != 4:
        raise InputError(f"{place}: {text!r} must be a study, a panel, a series and a metric")
    study = studies[known(parts[0], studies, f"{place}: study")]
    study.panel(parts[1], place)
    study.series_named(parts[2], place)
    return Curve(study, parts[1], parts[2], known(parts[3], METRICS, f"{place}: metric"))
