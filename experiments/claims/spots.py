"""Single numbers of studies, and curves of them: what claims are about; and the checks of an order or a trend.

The checks are the only readings of a sentence such as "the impact is not significant" that this project has; what each
compares, and within what, stands in the paper's claims.yaml.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from operator import gt, lt
from statistics import fmean
from typing import Any

import numpy as np

from experiments.studies.found import runs
from experiments.studies.metrics import METRICS
from experiments.studies.points import Point, point
from experiments.studies.reading import known
from experiments.studies.study import Study
from simlora.core.errors import InputError

Figures = Callable[[Point, str], float]
"""Returns a metric of a point's run. Raises LookupError if there is none."""


@dataclass(frozen=True)
class Curve:
    """One metric of one series of a study, over x; the mean of runs with these seeds, if there are any."""

    study: Study
    panel: str
    series: str
    metric: str
    seeds: Sequence[int] = ()

    @property
    def x(self) -> Sequence[Any]:
        """All values of x of its panel."""
        return self.study.panel(self.panel).x

    def at(self, x: Any) -> Spot:
        """Return the curve's point at x."""
        known(x, self.x, f"{self.study.name} {self.panel}: x")
        panel, series = self.study.panel(self.panel), self.study.series_named(self.series)
        return Spot(point(self.study, panel, series, x), self.metric, self.seeds)

    def spots(self) -> list[Spot]:
        """Return its points at all values of x that the study does not leave out."""
        return [spot for spot in map(self.at, self.x) if not spot.point.skip]

    def __str__(self) -> str:
        return f"{self.metric} of {self.series} ({self.panel})"


@dataclass(frozen=True)
class Spot:
    """One metric of one run of a study, or its mean over runs of that point with these seeds."""

    point: Point
    metric: str
    seeds: Sequence[int] = ()

    @property
    def points(self) -> list[Point]:
        """The runs that it is about."""
        return runs(self.point, self.seeds)

    def number(self, figures: Figures) -> float:
        """Return the number."""
        return fmean(figures(point, self.metric) for point in self.points)

    def looked_at(self, figures: Figures) -> list[Point]:
        """Return the runs that the number is of."""
        return self.points

    def __str__(self) -> str:
        return f"{self.metric} of {self.point.series} ({self.point.panel}) at {self.point.x}"


@dataclass(frozen=True)
class Limit:
    """The largest x at which a curve is at most `most`, on straight lines between its points.

    If the last point is below it is the last x; from the first point the line goes to 0 at x = 0. Assumed is that a
    curve that is above at an x is so at all larger ones: so that half of its points, or fewer, are looked at.
    """

    curve: Curve
    most: float

    @property
    def point(self) -> Point:
        """The first of the runs that it may look at."""
        return self.points[0]

    @property
    def points(self) -> list[Point]:
        """The runs that it may look at: all of the curve."""
        return [point for spot in self.curve.spots() for point in spot.points]

    def number(self, figures: Figures) -> float:
        """Return the number."""
        return self._found(lambda spot: spot.number(figures))

    def looked_at(self, figures: Figures) -> list[Point]:
        """Return the runs that the number is of; where one is not among the figures, those until then and that one."""
        seen = []

        def value(spot: Spot) -> float:
            seen.extend(spot.points)
            return spot.number(figures)

        with suppress(LookupError):
            self._found(value)
        return seen

    def _found(self, value: Callable[[Spot], float]) -> float:
        """Halve what may be until a point below and the next one above are left."""
        spots = self.curve.spots()
        at, values = [0.0, *(float(spot.point.x) for spot in spots)], {0: 0.0}
        low, high = 0, len(at)
        while high - low > 1:
            middle = (low + high) // 2
            values[middle] = value(spots[middle - 1])
            low, high = (middle, high) if values[middle] <= self.most else (low, middle)
        if high == len(at):
            return at[-1]
        return at[low] + (at[high] - at[low]) * (self.most - values[low]) / (values[high] - values[low])

    def __str__(self) -> str:
        return f"x up to which {self.curve} is at most {self.most:g}"


def read_spot(text: Any, place: str, studies: Mapping[str, Study], seeds: Sequence[int] = ()) -> Spot | Limit:
    """Read `table_3 S1 slora 5 throughput_rps`: study, panel, series, x, metric.

    With `<0.5` for x it is the largest x at which the metric is at most 0.5.
    """
    parts = str(text).split()
    if len(parts) != 5:
        raise InputError(f"{place}: {text!r} must be a study, a panel, a series, a value of x and a metric")
    study, panel, series, x, metric = parts
    curve = read_curve(f"{study} {panel} {series} {metric}", place, studies, seeds)
    if x.startswith("<"):
        return Limit(curve, _bound(x[1:], place))
    by_name = {str(value): value for value in curve.x}
    return curve.at(by_name[known(x, by_name, f"{place}: x")])


def _bound(text: str, place: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise InputError(f"{place}: x is '<{text}', must be < and a number") from None


def read_curve(text: Any, place: str, studies: Mapping[str, Study], seeds: Sequence[int] = ()) -> Curve:
    """Read `figure_5 a10g_S1 slora throughput_rps`: study, panel, series, metric."""
    parts = str(text).split()
    if len(parts) != 4:
        raise InputError(f"{place}: {text!r} must be a study, a panel, a series and a metric")
    study = studies[known(parts[0], studies, f"{place}: study")]
    study.panel(parts[1], place)
    study.series_named(parts[2], place)
    return Curve(study, parts[1], parts[2], known(parts[3], METRICS, f"{place}: metric"), seeds)


Values = Callable[[Spot], float]
"""Returns the simulated number of a spot."""


@dataclass(frozen=True)
class Comparison:
    """One comparison: what it says, in numbers, and whether it is so."""

    says: str
    passed: bool


CURVES = ("curve", "upper", "lower")
"""The arguments of checks that are curves."""


@dataclass(frozen=True)
class Check:
    """What a check is called with, and what compares: it gets the numbers of spots, values of x, and its arguments."""

    arguments: Sequence[str]
    does: Callable[..., Iterator[Comparison]]

    def compare(self, arguments: Mapping[str, Any], values: Values) -> list[Comparison]:
        """Return the comparisons."""
        own = {name: arguments[name] for name in self.arguments}
        return list(self.does(values, _x(arguments), **own))


def spots_of(arguments: Mapping[str, Any]) -> list[Spot]:
    """Return the spots that a check needs: those of its curves."""
    curves = [arguments[name] for name in CURVES if name in arguments]
    return [curve.at(x) for x in _x(arguments) for curve in curves]


def _above(values: Values, xs: Sequence[Any], upper: Curve, lower: Curve) -> Iterator[Comparison]:
    """`upper` is above `lower` at each of `x` (all)."""
    for x in xs:
        high, low = values(upper.at(x)), values(lower.at(x))
        yield Comparison(f"{upper} {high:.3g} above {lower.series} {low:.3g} at {x}", high > low)


def _widens(values: Values, xs: Sequence[Any], upper: Curve, lower: Curve) -> Iterator[Comparison]:
    """The gap between `upper` and `lower` is larger at the last x than at the first."""
    first, last = xs[0], xs[-1]
    gaps = [values(upper.at(x)) - values(lower.at(x)) for x in (first, last)]
    says = f"{upper} less {lower.series} grows from {gaps[0]:.3g} at {first} to {gaps[1]:.3g} at {last}"
    yield Comparison(says, gaps[1] > gaps[0])


def _between(
    values: Values, xs: Sequence[Any], curve: Curve, least: float, most: float
) -> Iterator[Comparison]:
    """Each later value of `curve` at `x` is `least` to `most` times the value at the first x."""
    first, *later = xs
    start = values(curve.at(first))
    for x in later:
        share = values(curve.at(x)) / start
        says = f"{curve} at {x} is {share:.3f} of that at {first}, within {least:g} and {most:g}"
        yield Comparison(says, least <= share <= most)


def _close(values: Values, xs: Sequence[Any], curve: Curve, within: float) -> Iterator[Comparison]:
    """All values of `curve` are within a share `within` of their largest."""
    found = [values(curve.at(x)) for x in xs]
    spread = (max(found) - min(found)) / max(found)
    yield Comparison(f"{curve} varies by {spread:.1%}, at most {within:.0%}", spread <= within)


def _better_when_small(
    values: Values, xs: Sequence[Any], curve: Curve, small: Sequence[Any], large: Any
) -> Iterator[Comparison]:
    """The mean of `curve` over the `small` x is above its value at `large`."""
    mean, other = float(np.mean([values(curve.at(x)) for x in small])), values(curve.at(large))
    yield Comparison(f"{curve} {mean:.3f} on average at {small} above {other:.3f} at {large}", mean > other)


def _beside(word: str, holds: Callable[[float, float], bool]) -> Callable[..., Iterator[Comparison]]:
    """Return what compares `curve` with `limit` at each of `x` (all): `below` it or `above`."""

    def does(values: Values, xs: Sequence[Any], curve: Curve, limit: float) -> Iterator[Comparison]:
        for x in xs:
            value = values(curve.at(x))
            yield Comparison(f"{curve} {value:.3g} {word} {limit:g} at {x}", holds(value, limit))

    return does


def _x(arguments: Mapping[str, Any]) -> Sequence[Any]:
    if "small" in arguments:
        return [*arguments["small"], arguments["large"]]
    curve: Curve = arguments["curve"] if "curve" in arguments else arguments["upper"]
    chosen: Sequence[Any] = arguments.get("x", curve.x)
    return chosen


CHECKS = {
    "above": Check(("upper", "lower"), _above),
    "widens": Check(("upper", "lower"), _widens),
    "between": Check(("curve", "least", "most"), _between),
    "below": Check(("curve", "limit"), _beside("below", lt)),
    "beyond": Check(("curve", "limit"), _beside("above", gt)),
    "close": Check(("curve", "within"), _close),
    "better_when_small": Check(("curve", "small", "large"), _better_when_small),
}
