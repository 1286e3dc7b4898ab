"""The checks that an order or a trend consists of, each a few comparisons of simulated numbers.

They are the only readings of a sentence such as "the impact is not significant" that this project has; what each
compares, and within what, stands in the paper's claims.yaml.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import gt, lt
from typing import Any

import numpy as np

from experiments.claims.spots import Curve, Spot

Values = Callable[[Spot], float]
"""Returns the simulated number of a spot."""


@dataclass(frozen=True)
class Comparison:
    """One comparison: what it says, in numbers, and whether it is so."""

    says: str
    passed: bool


CURVES = ("curve", "upper", "lower")
"""The arguments of checks that are curves."""
Compare = Callable[[Mapping[str, Any], Values], list[Comparison]]


@dataclass(frozen=True)
class Check:
    """What a check is called with, and what it compares."""

    arguments: Sequence[str]
    compare: Compare


def spots_of(arguments: Mapping[str, Any]) -> list[Spot]:
    """Return the spots that a check needs: those of its curves."""
    curves = [arguments[name] for name in CURVES if name in arguments]
    return [curve.at(x) for x in _x(arguments) for curve in curves]


def _above(arguments: Mapping[str, Any], values: Values) -> list[Comparison]:
    """`upper` is above `lower` at each of `x` (all)."""
    upper, lower = arguments["upper"], arguments["lower"]
    found = []
    for x in _x(arguments):
        high, low = values(upper.at(x)), values(lower.at(x))
        says = f"{upper} {high:.3g} above {lower.series} {low:.3g} at {x}"
        found.append(Comparison(says, high > low))
    return found


def _widens(arguments: Mapping[str, Any], values: Values) -> list[Comparison]:
    """The gap between `upper` and `lower` is larger at the last x than at the first."""
    upper, lower = arguments["upper"], arguments["lower"]
    first, last = _x(arguments)[0], _x(arguments)[-1]
    gaps = [values(upper.at(x)) - values(lower.at(x)) for x in (first, last)]
    says = f"{upper} less {lower.series} grows from {gaps[0]:.3g} at {first} to {gaps[1]:.3g} at {last}"
    return [Comparison(says, gaps[1] > gaps[0])]


def _between(arguments: Mapping[str, Any], values: Values) -> list[Comparison]:
    """Each later value of `curve` at `x` is `least` to `most` times the value at the first x."""
    curve, (least, most) = arguments["curve"], (arguments["least"], arguments["most"])
    first, *later = _x(arguments)
    start = values(curve.at(first))
    found = []
    for x in later:
        share = values(curve.at(x)) / start
        says = f"{curve} at {x} is {share:.3f} of that at {first}, within {least:g} and {most:g}"
        found.append(Comparison(says, least <= share <= most))
    return found


def _close(arguments: Mapping[str, Any], values: Values) -> list[Comparison]:
    """All values of `curve` are within a share `within` of their largest."""
    curve = arguments["curve"]
    found = [values(curve.at(x)) for x in _x(arguments)]
    spread = (max(found) - min(found)) / max(found)
    return [
        Comparison(
            f"{curve} varies by {spread:.1%}, at most {arguments['within']:.0%}",
            spread <= arguments["within"],
        )
    ]


def _better_when_small(arguments: Mapping[str, Any], values: Values) -> list[Comparison]:
    """The mean of `curve` over the `small` x is above its value at `large`."""
    curve = arguments["curve"]
    small = float(np.mean([values(curve.at(x)) for x in arguments["small"]]))
    large = values(curve.at(arguments["large"]))
    says = f"{curve} {small:.3f} on average at {arguments['small']} above {large:.3f} at {arguments['large']}"
    return [Comparison(says, small > large)]


def _beside(limit: str, holds: Callable[[float, float], bool]) -> Compare:
    """Return what compares `curve` with `limit` at each of `x` (all): `below` it or `above`."""

    def compare(arguments: Mapping[str, Any], values: Values) -> list[Comparison]:
        found = []
        for x in _x(arguments):
            value = values(arguments["curve"].at(x))
            says = f"{arguments['curve']} {value:.3g} {limit} {arguments['limit']:g} at {x}"
            found.append(Comparison(says, holds(value, arguments["limit"])))
        return found

    return compare


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
