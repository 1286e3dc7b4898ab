"""What is said of dlora_ae.json: each point of dLoRA's artifact figures beside ours.

The runs are those of the studies in `experiments/dlora`, with the same seeds. Nothing was fitted to these points: the
calibration knows three times of an iteration that the artifact's code states.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import inf
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

from experiments.dlora import measured
from experiments.dlora.paper import FOLDER, SEEDS
from experiments.fidelity.scatter import Dot, Panel, Plot
from experiments.fidelity.section import Errors, Section, fenced, grouped, spread
from experiments.studies.metrics import METRICS
from experiments.studies.points import points
from experiments.studies.several import Several, of_points
from experiments.studies.study import Study, read_all
from simlora.core.errors import InputError

FILE = measured.FILE
STUDIES = ("figure_9", "figure_10", "figure_11a", "figure_12")
HEAD = f"{'figure':<11} {'panel':<10} {'system':<22} {'x':>5}  {'':<34} {'measured':>9} {'simulated':>9} "
SPAN = f"{'of the seeds':>19} {'error':>9}"


class Compared(NamedTuple):
    """One measured number beside the mean over seeds, and the least and the most of them."""

    study: Study
    several: Several
    metric: str

    @property
    def measured(self) -> float:
        """What the artifact plots."""
        return self.several.measured[self.metric]

    @property
    def simulated(self) -> list[float]:
        """Ours, a number a seed."""
        return self.several.figures(self.metric)

    @property
    def error(self) -> float:
        """The relative error of the mean."""
        return fmean(self.simulated) / self.measured - 1.0

    @property
    def system(self) -> str:
        """What the figure calls the system."""
        return self.study.series_named(self.several.point.series).title

    def __str__(self) -> str:
        point, drawn = self.several.point, METRICS[self.metric].drawn
        ours = [drawn * figure for figure in self.simulated]
        numbers = f"{drawn * self.measured:>9.4g} {fmean(ours):>9.4g} {min(ours):>9.4g}{max(ours):>10.4g}"
        place = f"{point.study:<11} {point.panel:<10} {self.system:<22} {point.x:>5}"
        return f"{place}  {METRICS[self.metric].label:<34} {numbers} {self.error:>+9.1%}".replace("%", " %")

    def as_dict(self) -> dict[str, Any]:
        """What the JSON holds for this point."""
        point = self.several.point
        return {
            "study": point.study,
            "panel": point.panel,
            "series": point.series,
            "x": point.x,
            "metric": self.metric,
            "measured": self.measured,
            "simulated": fmean(self.simulated),
            "least": min(self.simulated),
            "most": max(self.simulated),
            "error": self.error,
        }


def report(path: Path, jobs: int = -1) -> Section:
    """Return what is said of the artifact's points. Raises InputError for another file of that name."""
    theirs = measured.read() or measured.Measured({})
    studies = [study for name, study in read_all(FOLDER).items() if name in STUDIES]
    known = [point for study in studies for point in points(study) if theirs.of(point)]
    several = of_points(known, SEEDS, jobs, theirs.of)
    compared = list(_compared(studies, several, path))
    reasons = [one.complaint for one in several if one.complaint]
    reasons += [f"{' '.join(map(str, point.key))}: {point.skip}" for point in known if point.skip]
    left_out = [f"not simulated: {reason}" for reason in dict.fromkeys(reasons)]
    groups = _groups(compared)
    summary = [_line(name, members) for name, members in groups.items()]
    head = f"dLoRA's artifact, means of {len(SEEDS)} seeds"
    return Section(
        printed="\n".join([head, *summary, HEAD + SPAN, *map(str, compared), *left_out]),
        tree={
            "runs": str(path),
            "seeds": len(SEEDS),
            "rows": [one.as_dict() for one in compared],
            "medians": {name: {"rows": len(own), **_spread(own)} for name, own in groups.items()},
            "skipped": left_out,
        },
        parts={"table": fenced("\n".join([*summary, *left_out]))},
        plots=[plot(compared)],
        errors=_errors(compared),
    )


def plot(compared: Sequence[Compared]) -> Plot:
    """Return a panel a metric."""
    panels = []
    for metric in dict.fromkeys(one.metric for one in compared):
        name, _, unit = METRICS[metric].label.rpartition(" (")
        drawn = METRICS[metric].drawn
        dots = [
            Dot(drawn * one.measured, drawn * fmean(one.simulated), one.system, fitted=False)
            for one in compared
            if one.metric == metric
        ]
        panels.append(Panel(name, unit.rstrip(")"), dots))
    return Plot("dlora", "dLoRA's artifact, A800 80 GB", panels)


def _compared(studies: Sequence[Study], several: Sequence[Several], path: Path) -> Iterator[Compared]:
    """Yield what both sides have. Raises InputError for what was not measured as a number above 0."""
    by_name = {study.name: study for study in studies}
    for one in several:
        for metric, figure in one.measured.items():
            if not isinstance(figure, int | float) or not 0 < figure < inf:
                place = " ".join(map(str, one.point.key))
                raise InputError(f"{path}: {metric} of {place} is {figure!r}, must be a number above 0")
            if one.figures(metric):
                yield Compared(by_name[one.point.study], one, metric)


def _groups(compared: Sequence[Compared]) -> dict[str, list[Compared]]:
    """Return points by figure, panel, metric and system; the largest median error first."""
    found = grouped(
        compared,
        lambda one: f"{one.study.name} {one.several.point.panel}, {_name(one.metric)}, {one.system}",
    )
    return dict(sorted(found.items(), key=lambda item: -_spread(item[1])["median"]))


def _errors(compared: Sequence[Compared]) -> list[Errors]:
    """Return a line a figure of the paper and metric."""
    found = grouped(
        compared, lambda one: f"dLoRA's {one.study.source.rpartition(', ')[2]}: {_name(one.metric)}"
    )
    return [Errors(name, len(members), **_spread(members)) for name, members in found.items()]


def _spread(members: Sequence[Compared]) -> dict[str, float]:
    return spread([one.error for one in members])


def _line(name: str, members: Sequence[Compared]) -> str:
    at = ", ".join(f"{100 * one.error:+.0f} at {one.several.point.x}" for one in members)
    return f"{name:<74} median {100 * _spread(members)['median']:>5.1f} %: {at}"


def _name(metric: str) -> str:
    return METRICS[metric].label.rpartition(" (")[0] or METRICS[metric].label
