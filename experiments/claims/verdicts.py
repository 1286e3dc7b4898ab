"""When a claim holds: one table for all papers, so that none is judged by a rule of its own; and numbers as shown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

HOLDS, NEAR, OFF, CONTRADICTS, NOT_SIMULATED = "holds", "near", "off", "contradicts itself", "not simulated"
VERDICTS = (HOLDS, NEAR, OFF, CONTRADICTS, NOT_SIMULATED)
HOLDS_WITHIN, NEAR_WITHIN = 0.10, 0.25
"""Relative error of a value or a ratio."""
ZERO_HOLDS_WITHIN, ZERO_NEAR_WITHIN = 0.03, 0.10
"""Absolute error where 0 was published, as for an attainment: no error is relative to 0."""
NEAR_SHARE = 1 - NEAR_WITHIN
"""Share of an order's or a trend's comparisons that must come out for it to be near."""


def of_value(published: float, simulated: float) -> str:
    """Return how near a simulated number comes to a published one."""
    if published == 0:
        return _within(abs(simulated), ZERO_HOLDS_WITHIN, ZERO_NEAR_WITHIN)
    return _within(abs(simulated / published - 1.0), HOLDS_WITHIN, NEAR_WITHIN)


def of_ratios(published: float, simulated: Sequence[float], sense: str) -> str:
    """Return what becomes of a claim about ratios.

    `about`: each is near the published one. `up_to`: the largest is. `at_most`: none is larger. `more_than`: all
    are larger. The last two hold only as they are said, and are near if they are missed by up to 25 %.
    """
    if sense == "about":
        return worst(of_value(published, ratio) for ratio in simulated)
    if sense == "up_to":
        return of_value(published, max(simulated))
    if sense == "at_most":
        largest = max(simulated)
        return HOLDS if largest <= published else NEAR if largest <= (1 + NEAR_WITHIN) * published else OFF
    least = min(simulated)
    return HOLDS if least > published else NEAR if least >= (1 - NEAR_WITHIN) * published else OFF


def of_comparisons(passed: Sequence[bool]) -> str:
    """Return what becomes of an order or a trend: all comparisons, or three quarters of them, come out."""
    if all(passed):
        return HOLDS
    return NEAR if sum(passed) >= NEAR_SHARE * len(passed) else OFF


def with_disagreement(against_published: str, against_other: str) -> str:
    """Return the verdict where the paper, or its artifact, gives a second number for the same run, far from the first.

    It contradicts itself, whichever of them we come near. If we come near neither, that is our error and stays `off`.
    """
    return OFF if {against_published, against_other} == {OFF} else CONTRADICTS


def worst(verdicts: Iterable[str]) -> str:
    """Return the worst of holds, near and off."""
    return max(verdicts, key=(HOLDS, NEAR, OFF).index)


def _within(error: float, holds: float, near: float) -> str:
    return HOLDS if error <= holds else NEAR if error <= near else OFF


def shown(value: Any) -> str:
    """Return a cell: numbers with three digits, several of them with semicolons."""
    if value is None:
        return "-"
    if isinstance(value, list):
        return "; ".join(map(shown, value))
    if isinstance(value, int | float):
        return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.3g}"
    return str(value)


def error_shown(published: Any, errors: list[float] | None) -> str:
    """Return relative errors in %; where 0 was published the error is absolute."""
    if errors is None:
        return ""
    values = published if isinstance(published, list) else [published] * len(errors)
    return "; ".join(
        f"{error:+.1%}".replace("%", " %") if value else f"{error:+.3f}"
        for value, error in zip(values, errors, strict=True)
    )
