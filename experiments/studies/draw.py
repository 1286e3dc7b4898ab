"""Draws a study like the paper's figure: metrics below each other, panels beside each other.

Ours is filled, the paper's is a hollow diamond of the same colour, pale inside where coefficients were fitted to that
run. Where our model does not fit the GPU's memory there is a cross on the axis, where the paper's did not it says OOM.
What is beyond all measurements is hollow, or pale where it is a bar.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import matplotlib

from experiments.studies.gathered import Gathered
from experiments.studies.metrics import METRICS, SHARES
from experiments.studies.study import OOM, Panel, Series, Study
from simlora.sweeps.outcome import DOES_NOT_FIT, NOT_SIMULATED

matplotlib.use("Agg")
from matplotlib import pyplot as plt
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLOURS = ("#2b6cd4", "#d08700", "#0e8f7e", "#b0417d", "#6b6f76", "#7a5ac8", "#6b3f1d")
"""Blue, amber, teal, plum, grey, violet, brown: told apart with the common kinds of colour blindness."""
INK, GRID = "#1b1d21", "#e2e3e1"
OURS: dict[str, Any] = {"marker": "o", "markersize": 5, "clip_on": False, "in_layout": False}
THEIRS: dict[str, Any] = {
    "marker": "D",
    "markersize": 8,
    "markerfacecolor": "none",
    "markeredgewidth": 1.4,
    "linestyle": "none",
    "clip_on": False,
    "in_layout": False,
}
BEYOND: dict[str, Any] = OURS | {"markerfacecolor": "white", "markeredgewidth": 1.4, "linestyle": "none"}
PALE = 0.35
"""How opaque the inside is of a diamond whose run was fitted, and a bar beyond all measurements."""
NAN = float("nan")
NO_ROOM: dict[str, Any] = {"marker": "x", "markersize": 7, "markeredgewidth": 1.6, "linestyle": "none"}
BARS = 0.8
"""Share of the distance between two categories that their bars take."""
APART = 0.05
"""Share of the axis that curves take which are drawn beside each other."""

BETWEEN = 0.1
"""Inches around plots that each have a label of their own at the left."""


DPI = 150


def save(figure: Figure, path: Path) -> None:
    """Write a figure as PNG, and say where it is."""
    write(figure, path)
    print(path)


def write(figure: Figure, path: Path, dpi: int = DPI) -> None:
    """Write a figure as PNG, of the same bytes for the same data: without the version of what drew it."""
    figure.savefig(path, dpi=dpi, metadata={"Software": None})
    plt.close(figure)


def plain(ax: Axes, axis: Literal["both", "x", "y"] = "y", **look: Any) -> None:
    """Leave of a plot's frame left and bottom, with lines of a grid across an axis, behind what is drawn."""
    ax.spines[["top", "right"]].set_visible(False)
    ax.grid(axis=axis, color=GRID, **look)
    ax.set_axisbelow(True)


def legend_below(figure: Figure, ax: Axes, columns: int) -> None:
    """Put the legend of one plot, which is that of all, below them."""
    handles, labels = ax.get_legend_handles_labels()
    look: dict[str, Any] = {"loc": "outside lower center", "frameon": False, "fontsize": "small"}
    figure.legend(handles, labels, ncols=columns, **look)


def draw(study: Study, gathered: Sequence[Gathered], path: Path, dpi: int = DPI) -> None:
    """Write a study's figure as PNG. The plots of a single panel stand beside each other."""
    across, down = len(study.panels), len(study.metrics)
    if across == 1:
        across, down = down, across
    width = max(2.2 + 2.8 * across, 7.0)
    size = (width, 1.6 + 2.5 * down)
    figure, axes = plt.subplots(down, across, figsize=size, squeeze=False, layout="constrained")
    if len(study.panels) == 1:
        figure.get_layout_engine().set(w_pad=BETWEEN)
    cells = [(panel, metric) for metric in study.metrics for panel in study.panels]
    for ax, (panel, metric) in zip(axes.flat, cells, strict=True):
        own = [one for one in gathered if one.point.panel == panel.name]
        (_bars if study.kind == "bars" else _lines)(ax, study, panel, metric, own)
        _limits(ax, study, metric, own)
        _frame(ax, study, panel, metric)
    _name(axes, study, int(12 * width / across), [_missing(study, panel, gathered) for panel in study.panels])
    title = [study.title, *textwrap.wrap(study.source, int(13 * width))]
    if len(study.panels) == 1:
        title.append(study.panels[0].title)
    figure.suptitle("\n".join(title), fontsize="medium", color=INK)
    _legend(figure, study, gathered, width)
    write(figure, path, dpi)


def _frame(ax: Axes, study: Study, panel: Panel, metric: str) -> None:
    plain(ax)
    ax.tick_params(labelsize="small")
    ax.set_title(panel.title, fontsize="small")
    ax.set_xlabel(study.x.label, fontsize="small")
    ax.set_ylabel(METRICS[metric].label, fontsize="small")
    drawn = METRICS[metric].drawn
    ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{drawn * value:,.6g}"))


def _name(axes: Any, study: Study, letters: int, missing: Sequence[Sequence[str]]) -> None:
    """Break long titles, and name what several plots share once: panel above, metric at the left, x below.

    The title of a single panel is the figure's. `missing`: lines below the title of each panel.
    """
    single = len(study.panels) == 1
    for row, across in enumerate(axes):
        for column, ax in enumerate(across):
            title = "" if row or single else ax.get_title()
            below = [] if row or single else missing[column]
            ax.set_title("\n".join([*textwrap.wrap(title, letters), *below]), fontsize="small")
            if row < len(axes) - 1:
                ax.set_xlabel("")
            if column and not single:
                ax.set_ylabel("")


def _limits(ax: Axes, study: Study, metric: str, gathered: Sequence[Gathered]) -> None:
    values = [value for one in gathered for value in _values(one, metric)]
    if metric in study.logarithmic:
        _logarithmic(ax, [value for value in values if value > 0])
    else:
        ax.set_ylim(0, 1.05 if metric in SHARES else 1.12 * (max(values, default=0.0) or 1.0))


def _logarithmic(ax: Axes, values: Sequence[float]) -> None:
    """Make y logarithmic, with room around what is drawn and marks at 1, 2 and 5."""
    if not values:
        return
    ax.set_yscale("log")
    ax.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    ax.yaxis.set_minor_formatter(NullFormatter())
    ax.set_ylim(min(values) / 1.6, max(values) * 1.3)


def _values(one: Gathered, metric: str) -> list[float]:
    """Return what is drawn of a point."""
    simulated = one.outcome.figure(metric)
    return [*_published(one, metric), *([] if simulated is None else [simulated])]


def _published(one: Gathered, metric: str) -> list[float]:
    return [value for value in one.published.get(metric, ()) if value != OOM]


def _lines(ax: Axes, study: Study, panel: Panel, metric: str, gathered: Sequence[Gathered]) -> None:
    for colour, series in zip(_colours(study), study.series, strict=True):
        own = [one for one in gathered if one.point.series == series.name]
        at = [_beside(study, panel, series, _place(study, panel, one.point.x)) for one in own]
        ours = [_number(one.outcome.figure(metric)) for one in own]
        ax.plot(at, ours, color=colour, linewidth=1.6, **OURS)
        beyond = [value if one.point.beyond else NAN for one, value in zip(own, ours, strict=True)]
        ax.plot(at, beyond, color=colour, **BEYOND)
        for x, one in zip(at, own, strict=True):
            values = _published(one, metric)
            ax.plot([x] * len(values), values, color=colour, **_theirs(one, colour))
            _mark_no_room(ax, one, x, colour)
    if study.x.scale == "log":
        ax.set_xscale("log", base=2)
    places = [_place(study, panel, x) for x in panel.x]
    ax.set_xticks(places, list(map(_tick, panel.x)))
    ax.xaxis.set_minor_formatter(NullFormatter())
    _spread_ticks(ax, [math.log2(place) for place in places] if study.x.scale == "log" else places)


def _place(study: Study, panel: Panel, x: Any) -> float:
    """Return where a value of x is drawn: categories at equal distances."""
    return panel.x.index(x) if study.x.categories else float(x)


def _tick(x: Any) -> str:
    if not isinstance(x, int):
        return str(x)
    return f"{x / 1e9:g} G" if x >= 1e8 else f"{x:,}"


def _beside(study: Study, panel: Panel, series: Series, at: float) -> float:
    """Return where a point of a series is drawn that belongs at `at`."""
    if not study.x.apart:
        return at
    places = [_place(study, panel, x) for x in panel.x]
    steps = study.series.index(series) - (len(study.series) - 1) / 2
    if study.x.scale == "log":
        return float(at * (max(places) / min(places)) ** (steps * APART / len(study.series)))
    return at + steps * APART * (max(places) - min(places)) / len(study.series)


def _theirs(one: Gathered, colour: str) -> dict[str, Any]:
    return THEIRS | ({"markerfacecolor": to_rgba(colour, PALE)} if one.fitted else {})


def _missing(study: Study, panel: Panel, gathered: Sequence[Gathered]) -> list[str]:
    """Name the series that a panel has no simulated point of."""
    found = []
    for series in study.series:
        at = (one for one in gathered if (one.point.panel, one.point.series) == (panel.name, series.name))
        if {one.outcome.status for one in at} == {NOT_SIMULATED}:
            found.append(f"({series.title}: not simulated)")
    return found


def _spread_ticks(ax: Axes, x: Sequence[float]) -> None:
    """Leave out labels that would lie over each other: those within 8 % of the axis of the label before, or more
    if they are long.
    """
    span, last = max(x) - min(x), None
    for value, label in zip(x, ax.get_xticklabels(), strict=True):
        if last is not None and value - last < max(0.08, 0.033 * len(label.get_text())) * span:
            label.set_visible(False)
        else:
            last = value


def _bars(ax: Axes, study: Study, panel: Panel, metric: str, gathered: Sequence[Gathered]) -> None:
    wide = BARS / len(study.series)
    for index, (colour, series) in enumerate(zip(_colours(study), study.series, strict=True)):
        for one in gathered:
            if one.point.series != series.name:
                continue
            at = panel.x.index(one.point.x) + (index + 0.5) * wide - BARS / 2
            opaque = PALE if one.point.beyond else 1.0
            ax.bar(at, _number(one.outcome.figure(metric)), 0.92 * wide, color=colour, alpha=opaque)
            values = _published(one, metric)
            ax.plot([at] * len(values), values, **(_theirs(one, "white") | {"markeredgecolor": INK}))
            _mark_no_room(ax, one, at, colour)
    ax.set_xticks(range(len(panel.x)), list(map(_tick, panel.x)))
    ax.set_xlim(-0.6, len(panel.x) - 0.4)


def _mark_no_room(ax: Axes, one: Gathered, at: float, colour: str) -> None:
    """Put a cross on the axis where our model did not fit, and OOM where the paper's did not."""
    on_axis: dict[str, Any] = {"transform": ax.get_xaxis_transform(), "clip_on": False, "color": colour}
    if one.outcome.status == DOES_NOT_FIT:
        ax.plot([at], [0.03], **NO_ROOM, **on_axis)
    if OOM in [value for values in one.published.values() for value in values]:
        ax.text(at, 0.07, OOM, rotation=90, ha="center", va="bottom", fontsize="x-small", **on_axis)


def _legend(figure: Any, study: Study, gathered: Sequence[Gathered], width: float) -> None:
    handles: list[Any] = [
        Patch(color=colour, label=series.title)
        if study.kind == "bars"
        else Line2D([], [], color=colour, label=series.title, linewidth=1.6, **OURS)
        for colour, series in zip(_colours(study), study.series, strict=True)
    ]
    for what in dict.fromkeys(one.point.beyond for one in gathered if one.point.beyond):
        label = f"extrapolated: {what}"
        handles.append(
            Patch(color=INK, alpha=PALE, label=label)
            if study.kind == "bars"
            else Line2D([], [], color=INK, label=label, **BEYOND)
        )
    if any(one.published for one in gathered):
        label = "printed in the paper" if study.printed else "measured by the authors"
        handles.append(Line2D([], [], color=INK, label=label, **THEIRS))
    if any(one.published and one.fitted for one in gathered):
        pale = {"markerfacecolor": to_rgba(INK, PALE)}
        handles.append(Line2D([], [], color=INK, label="coefficients fitted to this run", **(THEIRS | pale)))
    if any(one.outcome.status == DOES_NOT_FIT for one in gathered):
        handles.append(Line2D([], [], color=INK, label="out of memory, simulated", **NO_ROOM))
    rows = math.ceil(sum(0.7 + 0.075 * len(handle.get_label()) for handle in handles) / width)
    columns = math.ceil(len(handles) / rows)
    figure.legend(handles=handles, loc="outside lower center", ncols=columns, frameon=False, fontsize="small")


def _colours(study: Study) -> Sequence[str]:
    return [COLOURS[index % len(COLOURS)] for index in range(len(study.series))]


def _number(value: float | None) -> float:
    return NAN if value is None else float(value)
