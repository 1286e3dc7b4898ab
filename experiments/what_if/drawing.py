"""Draws a what-if: means over seeds as curves, and their 95 % intervals as bars."""

from __future__ import annotations

from math import isnan
from pathlib import Path
from typing import Any

from matplotlib import pyplot as plt
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from experiments.studies.draw import COLOURS, INK, plain, save
from experiments.studies.metrics import METRICS
from experiments.studies.study import Study
from experiments.what_if.gathered import Gathered, every_x

WIDE, HIGH = 4.2, 3.0
"""Inches of one plot."""
MANY = 6
"""Categories above which their names stand upright, below the last row alone."""
NAMES = 1.6
"""Inches of such names."""
APART = 0.22
"""Of a category's width: between series."""


def draw(study: Study, found: Gathered, path: Path) -> None:
    """Draw metrics below each other and panels beside each other; of one panel, metrics beside each other.

    Bars are 95 % intervals.
    """
    cells = [(metric, panel) for metric in study.metrics for panel in study.panels]
    columns = len(study.panels) if len(study.panels) > 1 else len(study.metrics)
    rows = len(cells) // columns
    upright = bool(study.x.categories) and len(every_x(study)) > MANY
    size = 1.2 + WIDE * columns, 1.1 + HIGH * rows + (NAMES if upright else 0.0)
    figure, axes = plt.subplots(rows, columns, figsize=size, squeeze=False, layout="constrained")
    for place, (ax, (metric, panel)) in enumerate(zip(axes.flat, cells, strict=True)):
        last = place >= len(cells) - columns
        for order, series in enumerate(study.series):
            _curve(ax, study, found, panel.name, series.name, metric, order)
        _axes(ax, study, metric)
        if upright:
            words = [str(x).replace("_", " ") for x in every_x(study)]
            ax.set_xticks(range(len(words)), words if last else [""] * len(words), rotation=90)
            ax.set_xlabel(study.x.label if last else "")
        ax.set_title(panel.title if len(study.panels) > 1 else "", fontsize=10)
    curves: dict[str, Any] = {}
    for ax in axes.flat:
        curves |= {label: curve for curve, label in zip(*ax.get_legend_handles_labels(), strict=True)}
    style = {
        "loc": "outside lower center",
        "ncols": min(len(curves), 2 + columns),
        "frameon": False,
        "fontsize": 9,
    }
    figure.legend(curves.values(), curves.keys(), **style)
    only = f": {study.panels[0].title}" if len(study.panels) == 1 else ""
    figure.suptitle(f"{study.title}{only}", color=INK, fontsize=12)
    save(figure, path)


def _axes(ax: Any, study: Study, metric: str) -> None:
    ax.set_ylabel(METRICS[metric].label)
    ax.set_xlabel(study.x.label)
    if metric in study.logarithmic:
        ax.set_yscale("log")
        ax.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        ax.yaxis.set_minor_formatter(NullFormatter())
    elif metric.endswith("attainment"):
        ax.set_ylim(-0.03, 1.03)
    else:
        ax.set_ylim(0, 1.04 * ax.get_ylim()[1])
    if study.x.categories:
        ax.set_xticks(range(len(every_x(study))), [str(x).replace("_", "\n") for x in every_x(study)])
    elif study.x.scale == "log":
        ax.set_xscale("log")
    plain(ax, "both", linewidth=0.7)


def _curve(ax: Any, study: Study, found: Gathered, panel: str, series: str, metric: str, place: int) -> None:
    own = [
        (x, found[panel, series, x, metric]) for x in every_x(study) if (panel, series, x, metric) in found
    ]
    if not own:
        return
    factor = METRICS[metric].drawn
    aside = APART * (place - (len(study.series) - 1) / 2)
    at = [list(every_x(study)).index(x) + aside if study.x.categories else x for x, _ in own]
    mean = [factor * cell.mean for _, cell in own]
    errors = [
        [0.0 if isnan(cell.low) else factor * (cell.mean - cell.low) for _, cell in own],
        [0.0 if isnan(cell.low) else factor * (cell.high - cell.mean) for _, cell in own],
    ]
    if metric in study.logarithmic:  # an interval may reach below 0, where there is no logarithm
        errors[0] = [min(below, 0.95 * value) for below, value in zip(errors[0], mean, strict=True)]
    title = study.series_named(series).title
    ax.errorbar(
        at,
        mean,
        yerr=errors,
        color=COLOURS[place % len(COLOURS)],
        marker="os^Dv<>"[place % 7],
        markersize=4.5,
        linewidth=1.5,
        capsize=2.5,
        label=title,
        linestyle="none" if study.x.categories else "-",
    )
