"""Draws a study: a plot for every panel and metric, with means over seeds as curves or bars.

Ours is filled, the paper's is a hollow diamond of the same colour, pale inside where coefficients were fitted to that
run. A band shows how far seeds are apart, or a bar where x are categories without order. A curve that lies on another
one is dashed, so that both are seen. Where our model does not fit the GPU's memory there is a cross on the axis, where
the paper's did not it says OOM. What is beyond all measurements is hollow, or pale where it is a bar.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

from matplotlib import pyplot as plt
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter, NullLocator

from experiments.studies.found import Found
from experiments.studies.look import COLOURS, DPI, INK, plain, write
from experiments.studies.metrics import METRICS, SHARES
from experiments.studies.study import OOM, Panel, Study
from simlora.sweeps.outcome import DOES_NOT_FIT, NOT_SIMULATED

if TYPE_CHECKING:
    from matplotlib.axes import Axes

OURS: dict[str, Any] = {"marker": "o", "markersize": 4, "clip_on": False, "in_layout": False}
HOLLOW: dict[str, Any] = {"markeredgewidth": 1.4, "linestyle": "none", "clip_on": False, "in_layout": False}
THEIRS: dict[str, Any] = HOLLOW | {"marker": "D", "markersize": 7, "markerfacecolor": "none"}
BEYOND: dict[str, Any] = HOLLOW | {"marker": "o", "markersize": 5, "markerfacecolor": "white"}
PALE = 0.35
"""How opaque the inside is of a diamond whose run was fitted, and a bar beyond all measurements."""
NO_ROOM: dict[str, Any] = {"marker": "x", "markersize": 7, "markeredgewidth": 1.6, "linestyle": "none"}
BAND: dict[str, Any] = {"alpha": 0.16, "linewidth": 0}
BARS, APART = 0.8, 0.05
"""Share of the distance between two categories that bars take, and of the axis that curves beside each other do."""
ALIKE, MOSTLY = 0.01, 0.75
"""How far two curves may differ, and at what share of their points, to be one on the other."""
MOST_ACROSS, WIDE, LETTERS, MANY = 4, 3.0, 10, 6
"""Plots beside each other, inches of one, letters of a tick in an inch; categories above which names stand upright."""
TARGET = "target, "
"""How the label of a target's line begins."""
Ends = Callable[[Sequence[float]], tuple[float, float]]
"""How far the seeds of a point are apart: least and most, or an interval of their mean."""


def least_to_most(values: Sequence[float]) -> tuple[float, float]:
    """Return both ends of what the seeds have."""
    return min(values), max(values)


def draw(
    study: Study,
    found: Sequence[Found],
    path: Path,
    dpi: int = DPI,
    targets_s: Mapping[str, float] | None = None,
    ends: Ends = least_to_most,
) -> None:
    """Write a study's figure as PNG. `targets_s`: lines across the plots of a metric."""
    cells = [(panel, metric) for metric in study.metrics for panel in study.panels]
    grid = len(study.panels) > 1 and len(study.metrics) > 1
    across = len(study.panels) if grid else min(len(cells), MOST_ACROSS)
    down = math.ceil(len(cells) / across)
    width = max(1.6 + WIDE * across, 7.0)
    figure, axes = plt.subplots(
        down, across, figsize=(width, 1.7 + 2.6 * down), squeeze=False, layout="constrained"
    )
    for ax in axes.flat[len(cells) :]:
        ax.set_visible(False)
    for place, (ax, (panel, metric)) in enumerate(zip(axes.flat, cells, strict=False)):
        own = [one for one in found if one.point.panel == panel.name]
        (_bars if study.kind == "bars" else _curves)(ax, study, panel, metric, own, ends)
        _height(ax, study, metric, own, (targets_s or {}).get(metric, math.inf))
        _frame(ax, study, panel, metric, own, place if grid else 0, across)
        if grid and study.x.categories and len(panel.x) > MANY and place < len(cells) - across:
            # Names that stand upright take half of a plot: those of the last row are enough.
            ax.set(xlabel="", xticklabels=[])
    title = [study.title, *textwrap.wrap(study.source, int(13 * width))]
    title += [study.panels[0].title] if len(study.panels) == 1 else []
    figure.suptitle("\n".join(title), fontsize="medium", color=INK)
    _legend(figure, study, found, width, ends)
    write(figure, path, dpi)


def _frame(
    ax: Axes, study: Study, panel: Panel, metric: str, found: Sequence[Found], place: int, across: int
) -> None:
    """Name a plot; in a grid, panels are named above, metrics at the left."""
    plain(ax)
    ax.tick_params(labelsize="small")
    if len(study.panels) > 1 and place < across:
        ax.set_title("\n".join([*textwrap.wrap(panel.title, 34), *_missing(study, found)]), fontsize="small")
    ax.set_xlabel("\n".join(textwrap.wrap(study.x.label, 40)), fontsize="small")
    if place % across == 0:
        ax.set_ylabel("\n".join(textwrap.wrap(METRICS[metric].label, 28)), fontsize="small")
    ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))


def _missing(study: Study, found: Sequence[Found]) -> list[str]:
    """Name the series that a panel has no simulated point of."""
    of = {series.title: [one for one in found if one.point.series == series.name] for series in study.series}
    return [
        f"({title}: not simulated)"
        for title, own in of.items()
        if own and all(one.has(NOT_SIMULATED) for one in own)
    ]


def _height(ax: Axes, study: Study, metric: str, found: Sequence[Found], target_s: float) -> None:
    scale = METRICS[metric].drawn
    drawn = [scale * value for one in found for value in (*one.figures(metric), *_published(one, metric))]
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
        ax.set_ylim(0, 1.05 if metric in SHARES else 1.12 * (high or 1.0))


def _published(one: Found, metric: str) -> list[float]:
    return [value for value in one.published.get(metric, ()) if value != OOM]


def _curves(ax: Axes, study: Study, panel: Panel, metric: str, found: Sequence[Found], ends: Ends) -> None:
    """Draw all series, the first on top."""
    scale = METRICS[metric].drawn
    curves = [_means(found, series.name, metric) for series in study.series]
    for order, (colour, series) in enumerate(_coloured(study)):
        own = [one for one in found if one.point.series == series.name]
        there = [one for one in own if one.figures(metric)]
        at = [_beside(study, panel, order, _place(study, panel, one.point.x)) for one in there]
        means = [scale * fmean(one.figures(metric)) for one in there]
        look = OURS | {"color": colour, "linewidth": 1.6, "zorder": 3 - 0.1 * order}
        if below := sum(_alike(curves[order], other) for other in curves[order + 1 :]):
            look |= {"linestyle": (0, (4, 4 * below))}
        ax.plot(at, means, **look)
        spans = [[scale * _possible(metric, end) for end in ends(one.figures(metric))] for one in there]
        _spread(ax, study, at, means, spans, colour)
        beyond = [(x, mean) for x, mean, one in zip(at, means, there, strict=True) if one.point.beyond]
        ax.plot(*(zip(*beyond, strict=True) if beyond else ([], [])), color=colour, **BEYOND)
        for one in own:
            _theirs(ax, one, metric, _beside(study, panel, order, _place(study, panel, one.point.x)), colour)
    _ticks(ax, study, panel, [x for x in panel.x if any(one.point.x == x for one in found)] or panel.x)


def _possible(metric: str, end: float) -> float:
    """Return the end of an interval where a figure can be: not below 0, and a share not above 1."""
    return min(max(end, 0.0), 1.0 if metric in SHARES else math.inf)


def _spread(
    ax: Axes,
    study: Study,
    at: Sequence[float],
    means: Sequence[float],
    ends: Sequence[Sequence[float]],
    colour: str,
) -> None:
    """Show how far seeds are apart: a band along x, or a bar at each category."""
    known = [(x, mean, *pair) for x, mean, pair in zip(at, means, ends, strict=True) if pair[0] < pair[1]]
    if not known:
        return
    x, mean, low, high = map(list, zip(*known, strict=True))
    if study.x.categories:
        below, above = ([abs(a - b) for a, b in zip(mean, each, strict=True)] for each in (low, high))
        ax.errorbar(x, mean, yerr=[below, above], color=colour, linestyle="none", capsize=2.5)
    else:
        ax.fill_between(x, low, high, color=colour, **BAND)


def _means(found: Sequence[Found], series: str, metric: str) -> dict[Any, float]:
    own = [one for one in found if one.point.series == series and one.figures(metric)]
    return {one.point.x: fmean(one.figures(metric)) for one in own}


def _alike(one: Mapping[Any, float], other: Mapping[Any, float]) -> bool:
    shared = one.keys() & other.keys()
    close = sum(math.isclose(one[x], other[x], rel_tol=ALIKE, abs_tol=1e-9) for x in shared)
    return bool(shared) and close >= MOSTLY * len(shared)


def _place(study: Study, panel: Panel, x: Any) -> float:
    """Return where a value of x is drawn: categories at equal distances."""
    return float(panel.x.index(x) if study.x.categories else x)


def _beside(study: Study, panel: Panel, order: int, at: float) -> float:
    """Return where a point of a series is drawn that belongs at `at`."""
    if not study.x.apart:
        return at
    places = [_place(study, panel, x) for x in panel.x]
    share = (order - (len(study.series) - 1) / 2) * APART / len(study.series)
    if study.x.scale == "log":
        return float(at * (max(places) / min(places)) ** share)
    return at + share * (max(places) - min(places))


def _theirs(ax: Axes, one: Found, metric: str, at: float, colour: str, edge: str = "") -> None:
    """Draw what was published of a point, and where a model did not fit: a cross for ours, OOM for the paper's."""
    values = [METRICS[metric].drawn * value for value in _published(one, metric)]
    inside = {"markerfacecolor": to_rgba(colour, PALE)} if values and one.fitted else {}
    ax.plot([at] * len(values), values, **(THEIRS | {"color": edge or colour, "zorder": 4} | inside))
    on_axis: dict[str, Any] = {
        "transform": ax.get_xaxis_transform(),
        "clip_on": False,
        "color": edge or colour,
    }
    if one.has(DOES_NOT_FIT):
        ax.plot([at], [0.03], **NO_ROOM, **on_axis)
    if OOM in [value for values in one.published.values() for value in values]:
        ax.text(at, 0.07, OOM, rotation=90, ha="center", va="bottom", fontsize="x-small", **on_axis)


def _ticks(ax: Axes, study: Study, panel: Panel, values: Sequence[Any]) -> None:
    """Mark values of x, and label as many as there is room for: powers of two first if the axis is logarithmic."""
    texts = [_tick(x) for x in values]
    at = [_place(study, panel, x) for x in values]
    ax.xaxis.set_minor_locator(NullLocator())
    if study.x.categories:
        upright = {"rotation": 90} if len(values) > MANY else {}
        ax.set_xticks(at, [text.replace("_", " " if upright else "\n") for text in texts], **upright)
        return
    logarithmic = study.x.scale == "log"
    if logarithmic:
        ax.set_xscale("log", base=2)
        ax.xaxis.set_minor_locator(NullLocator())
    where = [math.log2(place) for place in at] if logarithmic else at
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


def _tick(x: Any) -> str:
    if not isinstance(x, int | float):
        return str(x)
    return f"{x / 1e9:g} G" if x >= 1e8 else f"{x:,g}" if x < 1e6 else f"{x:,.0f}"


def _bars(ax: Axes, study: Study, panel: Panel, metric: str, found: Sequence[Found], ends: Ends) -> None:
    wide, scale = BARS / len(study.series), METRICS[metric].drawn
    for index, (colour, series) in enumerate(_coloured(study)):
        for one in found:
            if one.point.series == series.name:
                at = panel.x.index(one.point.x) + (index + 0.5) * wide - BARS / 2
                opaque = PALE if one.point.beyond else 1.0
                for mean in [scale * fmean(one.figures(metric))] if one.figures(metric) else []:
                    ax.bar(at, mean, 0.92 * wide, color=colour, alpha=opaque)
                _theirs(ax, one, metric, at, "white", INK)
    ax.set_xticks(range(len(panel.x)), list(map(_tick, panel.x)))
    ax.set_xlim(-0.6, len(panel.x) - 0.4)


def _legend(figure: Figure, study: Study, found: Sequence[Found], width: float, ends: Ends) -> None:
    bars = study.kind == "bars"
    looks = [(series.title, OURS | {"linewidth": 1.6, "color": c}, bars) for c, series in _coloured(study)]
    for what in dict.fromkeys(one.point.beyond for one in found if one.point.beyond):
        looks.append((f"extrapolated: {what}", BEYOND | {"alpha": PALE if bars else None}, bars))
    if (seeds := max((len(one.outcomes) for one in found), default=0)) > 1:
        span = "least to most" if ends is least_to_most else "95 % interval"
        looks.append((f"{span} of {seeds} seeds", {"alpha": 2 * BAND["alpha"], "linewidth": 7}, False))
    if any(one.published for one in found):
        looks.append(("printed in the paper" if study.printed else "measured by the authors", THEIRS, False))
    if any(one.published and one.fitted for one in found):
        pale = {"markerfacecolor": to_rgba(INK, PALE)}
        looks.append(("coefficients fitted to this run", THEIRS | pale, False))
    if any(one.has(DOES_NOT_FIT) for one in found):
        looks.append(("out of memory, simulated", NO_ROOM, False))
    handles = [_key(label, {"color": INK, **look}, patch) for label, look, patch in looks]
    lines = (line for ax in figure.axes for line in ax.lines)
    handles += {label: line for line in lines if (label := str(line.get_label())).startswith(TARGET)}.values()
    letters = sum(9 + len(str(handle.get_label())) for handle in handles)
    columns = math.ceil(len(handles) / math.ceil(letters / (13 * width)))
    figure.legend(handles=handles, loc="outside lower center", ncols=columns, frameon=False, fontsize="small")


def _key(label: str, look: Mapping[str, Any], patch: bool) -> Any:
    if patch:
        return Patch(color=look["color"], alpha=look.get("alpha"), label=label)
    return Line2D([], [], label=label, **look)


def _coloured(study: Study) -> list[tuple[str, Any]]:
    return [(COLOURS[order % len(COLOURS)], series) for order, series in enumerate(study.series)]
