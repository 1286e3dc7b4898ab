"""Draws a study of several seeds: means as curves, least to most as a band, measured points as diamonds.

A curve that lies on another one is dashed, so that both are seen.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter, NullLocator

from experiments.studies.draw import COLOURS, DPI, INK, OURS, THEIRS, plain, write
from experiments.studies.metrics import METRICS
from experiments.studies.several import Several
from experiments.studies.study import Panel, Study

MOST_ACROSS = 3
"""Plots beside each other, before they go on below."""
BAND: dict[str, Any] = {"alpha": 0.16, "linewidth": 0}
TARGET = "target, "
"""How the label of a target's line begins."""
ALIKE, MOSTLY = 0.01, 0.75
"""How far two curves may differ, and at what share of their points, to be one on the other."""
LETTERS, WIDE = 10, 3.2
"""Letters of a tick that an inch holds, and the inches of a plot."""


def draw(
    study: Study,
    found: Sequence[Several],
    path: Path,
    dpi: int = DPI,
    targets_s: Mapping[str, float] | None = None,
) -> None:
    """Write a study's figure as PNG: a plot for every panel and metric. `targets_s`: lines across those of a metric."""
    cells = [(panel, metric) for metric in study.metrics for panel in study.panels]
    beside = len(study.panels) if len(study.panels) > 1 and len(study.metrics) > 1 else len(cells)
    across = min(beside, MOST_ACROSS) if len(study.metrics) == 1 or len(study.panels) == 1 else beside
    down = math.ceil(len(cells) / across)
    size = (max(1.2 + 3.2 * across, 7.0), 1.7 + 2.6 * down)
    figure, axes = plt.subplots(down, across, figsize=size, squeeze=False, layout="constrained")
    for ax in axes.flat[len(cells) :]:
        ax.set_visible(False)
    for ax, (panel, metric) in zip(axes.flat, cells, strict=False):
        own = [one for one in found if one.point.panel == panel.name]
        _curves(ax, study, panel, metric, own)
        _frame(ax, study, panel, metric, own)
        _height(ax, study, metric, own, (targets_s or {}).get(metric, math.inf))
    lines = [study.title, *textwrap.wrap(study.source, int(13 * size[0]))]
    figure.suptitle("\n".join(lines), fontsize="medium", color=INK)
    _legend(figure, study, found, size[0])
    write(figure, path, dpi)


def _curves(ax: Axes, study: Study, panel: Panel, metric: str, found: Sequence[Several]) -> None:
    """Draw all series, the first on top."""
    scale = METRICS[metric].drawn
    means = [_means(found, series.name, metric) for series in study.series]
    for order, (colour, series) in enumerate(zip(COLOURS, study.series, strict=False)):
        own = [one for one in found if one.point.series == series.name]
        there = [one for one in own if one.figures(metric)]
        at = [_place(study, panel, one.point.x) for one in there]
        drawn = [[scale * figure for figure in one.figures(metric)] for one in there]
        look = OURS | {"color": colour, "linewidth": 1.6, "markersize": 4, "zorder": 3 - 0.1 * order}
        if below := sum(_alike(means[order], other) for other in means[order + 1 :]):
            look |= {"linestyle": (0, (4, 4 * below))}
        ax.plot(at, list(map(fmean, drawn)), **look)
        ax.fill_between(at, list(map(min, drawn)), list(map(max, drawn)), color=colour, **BAND)
        theirs = [one for one in own if metric in one.measured]
        ax.plot(
            [_place(study, panel, one.point.x) for one in theirs],
            [scale * one.measured[metric] for one in theirs],
            **(THEIRS | {"color": colour, "markersize": 7, "zorder": 4}),
        )


def _means(found: Sequence[Several], series: str, metric: str) -> dict[Any, float]:
    return {
        one.point.x: fmean(one.figures(metric))
        for one in found
        if one.point.series == series and one.figures(metric)
    }


def _alike(one: Mapping[Any, float], other: Mapping[Any, float]) -> bool:
    shared = one.keys() & other.keys()
    close = sum(math.isclose(one[x], other[x], rel_tol=ALIKE, abs_tol=1e-9) for x in shared)
    return bool(shared) and close >= MOSTLY * len(shared)


def _frame(ax: Axes, study: Study, panel: Panel, metric: str, found: Sequence[Several]) -> None:
    plain(ax)
    ax.tick_params(labelsize="small")
    ax.set_title("\n".join(textwrap.wrap(panel.title, 34)), fontsize="small")
    ax.set_xlabel("\n".join(textwrap.wrap(study.x.label, 40)), fontsize="small")
    ax.set_ylabel("\n".join(textwrap.wrap(METRICS[metric].label, 28)), fontsize="small")
    _ticks(ax, study, panel, [x for x in panel.x if any(one.point.x == x for one in found)] or panel.x)


def _height(ax: Axes, study: Study, metric: str, found: Sequence[Several], target_s: float) -> None:
    scale = METRICS[metric].drawn
    drawn = [scale * value for one in found for value in (*one.figures(metric), *_one(one, metric))]
    low, high = min((value for value in drawn if value > 0), default=1.0), max(drawn, default=1.0)
    if scale * target_s <= 1.3 * high:
        look: dict[str, Any] = {"color": INK, "linewidth": 0.9, "linestyle": (0, (5, 3)), "zorder": 1}
        ax.axhline(scale * target_s, label=f"{TARGET}{target_s:g} s", **look)
    if metric in study.logarithmic:
        ax.set_yscale("log")
        ax.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if high / low < 200 else (1,)))
        ax.yaxis.set_minor_formatter(NullFormatter())
        ax.set_ylim(low / 1.5, high * 1.5)
    else:
        ax.set_ylim(0, 1.1 * high if high > 0 else 1.0)
    ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.6g}"))


def _one(one: Several, metric: str) -> list[float]:
    return [one.measured[metric]] if metric in one.measured else []


def _ticks(ax: Axes, study: Study, panel: Panel, values: Sequence[Any]) -> None:
    """Mark values of x, and label as many as there is room for: powers of two first if the axis is logarithmic."""
    logarithmic = study.x.scale == "log"
    if logarithmic:
        ax.set_xscale("log", base=2)
    at = [_place(study, panel, x) for x in values]
    where = [math.log2(place) for place in at] if logarithmic else at
    texts = [f"{x:g}" if isinstance(x, int | float) else str(x) for x in values]
    letter = (max(where) - min(where) or 1.0) / (LETTERS * WIDE)
    labelled: list[int] = []
    for index in sorted(range(len(at)), key=lambda index: logarithmic and not where[index].is_integer()):
        room = (
            abs(where[index] - where[other]) / letter - (len(texts[index]) + len(texts[other])) / 2
            for other in labelled
        )
        if min(room, default=1.0) >= 1.0:
            labelled.append(index)
    ax.set_xticks(at, [text if index in labelled else "" for index, text in enumerate(texts)])
    ax.xaxis.set_minor_locator(NullLocator())


def _place(study: Study, panel: Panel, x: Any) -> float:
    """Return where a value of x is drawn: categories at equal distances."""
    return float(panel.x.index(x)) if study.x.categories else float(x)


def _legend(figure: Figure, study: Study, found: Sequence[Several], width: float) -> None:
    handles = [
        Line2D([], [], color=colour, label=series.title, linewidth=1.6, **OURS)
        for colour, series in zip(COLOURS, study.series, strict=False)
    ]
    seeds = max((len(one.outcomes) for one in found), default=0)
    label = f"least to most of {seeds} seeds"
    handles.append(Line2D([], [], color=INK, alpha=BAND["alpha"], linewidth=7, label=label))
    if any(one.measured for one in found):
        handles.append(Line2D([], [], color=INK, label="measured by the authors", **THEIRS))
    lines = (line for ax in figure.axes for line in ax.lines)
    handles += {label: line for line in lines if (label := str(line.get_label())).startswith(TARGET)}.values()
    letters = sum(7 + len(str(handle.get_label())) for handle in handles)
    columns = math.ceil(len(handles) / math.ceil(letters / (13 * width)))
    figure.legend(handles=handles, loc="outside lower center", ncols=columns, frameon=False, fontsize="small")
