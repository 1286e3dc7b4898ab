"""What is said of dlora_ae.json: each point of dLoRA's artifact figures beside ours.

The runs are those of the studies in `experiments/dlora`, with the same seeds. Nothing was fitted to these points: the
calibration knows three times of an iteration that the artifact's code states.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf
from pathlib import Path
from statistics import fmean
from typing import Any

import pandas as pd

from experiments.dlora import measured
from experiments.dlora.measured import FOLDER, SEEDS
from experiments.fidelity.compare import Errors, Section, fenced, spread
from experiments.fidelity.scatter import Dot, Panel, Plot
from experiments.studies.found import Found, of_points
from experiments.studies.metrics import METRICS
from experiments.studies.points import points
from experiments.studies.study import Study, read_all
from simlora.core.errors import InputError
from simlora.sweeps.outcome import NOT_SIMULATED

FILE = measured.FILE
STUDIES = ("figure_9", "figure_10", "figure_11a", "figure_12")
SHOWN = ["study", "panel", "series", "x", "metric", "measured", "simulated", "least", "most", "error"]
"""What the JSON holds for a point."""
COLUMNS = [*SHOWN, "system", "what", "figure"]
HEAD = f"{'figure':<11} {'panel':<10} {'system':<22} {'x':>5}  {'':<34} {'measured':>9} {'simulated':>9} "
SPAN = f"{'of the seeds':>19} {'error':>9}"


def report(path: Path, jobs: int = -1) -> Section:
    """Return what is said of the artifact's points. Raises InputError for another file of that name."""
    theirs = measured.read() or measured.Measured({})
    studies = {name: study for name, study in read_all(FOLDER).items() if name in STUDIES}
    known = [point for study in studies.values() for point in points(study) if theirs.of(point)]
    several = of_points(known, SEEDS, jobs, theirs.of)
    table = compared(studies, several, path)
    reasons = [o.reason for one in several for o in one.outcomes if o.status == NOT_SIMULATED]
    reasons += [f"{' '.join(map(str, point.key))}: {point.skip}" for point in known if point.skip]
    left_out = [f"not simulated: {reason}" for reason in dict.fromkeys(reasons)]
    keys = ["study", "panel", "what", "system"]
    groups = {
        f"{study} {panel}, {what}, {system}": own
        for (study, panel, what, system), own in table.groupby(keys, sort=False)
    }
    medians = {name: {"rows": len(own), **spread(own["error"])} for name, own in groups.items()}
    worst_first = sorted(medians, key=lambda name: -medians[name]["median"])
    summary = [_line(name, groups[name]) for name in worst_first]
    head = f"dLoRA's artifact, means of {len(SEEDS)} seeds"
    return Section(
        printed="\n".join([head, *summary, HEAD + SPAN, *map(_row, table.itertuples()), *left_out]),
        tree={
            "runs": str(path),
            "seeds": len(SEEDS),
            "rows": table[SHOWN].to_dict("records"),
            "medians": {name: medians[name] for name in worst_first},
            "skipped": left_out,
        },
        parts={"table": fenced("\n".join([*summary, *left_out]))},
        plot=plot(table),
        errors=[
            Errors(f"dLoRA's {figure}: {what}", len(own), **spread(own["error"]))
            for (figure, what), own in table.groupby(["figure", "what"], sort=False)
        ],
    )


def compared(studies: Mapping[str, Study], several: Sequence[Found], path: Path) -> pd.DataFrame:
    """Return what both sides have, a row a point and metric: what the artifact plots, and ours over the seeds.

    Raises InputError for what was not measured as a number above 0.
    """
    found = []
    for one in several:
        point, study = one.point, studies[one.point.study]
        for metric, (theirs,) in one.published.items():
            if not isinstance(theirs, int | float) or not 0 < theirs < inf:
                place = " ".join(map(str, point.key))
                raise InputError(f"{path}: {metric} of {place} is {theirs!r}, must be a number above 0")
            if ours := one.figures(metric):
                place = (point.study, point.panel, point.series, point.x, metric)
                numbers = (theirs, fmean(ours), min(ours), max(ours), fmean(ours) / theirs - 1.0)
                what = METRICS[metric].label.rpartition(" (")[0] or METRICS[metric].label
                names = (study.series_named(point.series).title, what, study.source.rpartition(", ")[2])
                found.append((*place, *numbers, *names))
    return pd.DataFrame(found, columns=COLUMNS)


def plot(table: pd.DataFrame) -> Plot:
    """Return a panel a metric."""
    panels = []
    for metric, own in table.groupby("metric", sort=False):
        name, _, unit = METRICS[metric].label.rpartition(" (")
        drawn = own[["measured", "simulated"]] * METRICS[metric].drawn
        dots = [
            Dot(*sides, system, fitted=False) for *sides, system in drawn.assign(system=own["system"]).values
        ]
        panels.append(Panel(name, unit.rstrip(")"), dots))
    return Plot("dlora", "dLoRA's artifact, A800 80 GB", panels)


def _row(one: Any) -> str:
    drawn, label = METRICS[one.metric].drawn, METRICS[one.metric].label
    theirs, ours, least, most = (drawn * side for side in (one.measured, one.simulated, one.least, one.most))
    numbers = f"{theirs:>9.4g} {ours:>9.4g} {least:>9.4g}{most:>10.4g}"
    place = f"{one.study:<11} {one.panel:<10} {one.system:<22} {one.x:>5}"
    return f"{place}  {label:<34} {numbers} {one.error:>+9.1%}".replace("%", " %")


def _line(name: str, own: pd.DataFrame) -> str:
    at = ", ".join(f"{100 * error:+.0f} at {x}" for error, x in zip(own["error"], own["x"], strict=True))
    return f"{name:<74} median {100 * spread(own['error'])['median']:>5.1f} %: {at}"
