"""Expands a study into the runs it consists of."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from experiments.studies.study import Panel, Series, Study
from simlora.sweeps.outcome import Overrides

ALWAYS = {"timeline": False, "report": False, "progress": False}
"""A study draws its own pictures; those of a single run are not needed."""


@dataclass(frozen=True)
class Point:
    """One run of a study.

    `skip` says why the study leaves it out, `beyond` what measurements it is beyond; empty if neither is so.
    """

    study: str
    panel: str
    series: str
    x: Any
    settings: Mapping[str, Any]
    skip: str = ""
    beyond: str = ""

    @property
    def key(self) -> tuple[str, str, str, Any]:
        """What the point is called: study, panel, series, x."""
        return self.study, self.panel, self.series, self.x

    @property
    def system(self) -> str:
        """The name of the system."""
        return str(self.settings["system"])

    @property
    def overrides(self) -> Overrides:
        """The settings as overrides of the command line."""
        return tuple(f"{key}={written(value)}" for key, value in {**self.settings, **ALWAYS}.items())


def points(study: Study) -> Iterator[Point]:
    """Yield all points of a study, in the order of its panels, series and values of x."""
    for panel in study.panels:
        for series in study.series:
            for x in panel.x:
                yield point(study, panel, series, x)


def point(study: Study, panel: Panel, series: Series, x: Any) -> Point:
    """Return one point. Of settings for the same key the last counts: study, panel, x, series, rules."""
    settings = {
        "system": series.system,
        **study.settings,
        **panel.settings,
        study.x.key: study.x.value(x),
        **series.settings,
    }
    skip = beyond = ""
    for rule in study.rules:
        if rule.matches(panel.name, series.name, x):
            settings |= rule.settings
            skip, beyond = rule.skip or skip, rule.beyond or beyond
    return Point(study.name, panel.name, series.name, x, settings, skip, beyond)


def seeded(point: Point, seed: int) -> Point:
    """Return a point with another seed of everything random."""
    return replace(point, settings={**point.settings, "seed": seed})


def written(value: Any) -> str:
    """Return a value as the command line writes it: `[64,32]`, `{queue:2}`, `true`, `null`, `0.5`."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        return f"[{','.join(map(written, value))}]"
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{key}:{written(each)}" for key, each in value.items()) + "}"
    return str(value)
