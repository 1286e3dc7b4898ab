"""Measured against simulated, a dot a row: on the diagonal where the two agree."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from io import BytesIO
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter
from PIL import Image

from experiments.studies.look import COLOURS, INK, plain

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis

PALETTE = (*COLOURS, "#93a300", "#101010")
"""The studies' seven, olive and black."""
BAND = "#eceae4"
SIDE = 3.3
"""Inches of one plot."""
DPI = 110
LINE_IN, LETTER_IN = 0.2, 0.075
"""Inches of a line and of a letter of the legend."""
WIDE = 5.0
"""Axes are logarithmic where the largest number is more than so many times the smallest."""
NEAR = 100.0
"""Where it is less than so many times the smallest, they have marks at 2 and 5 too."""
TONES = 256
"""Colours of a picture: half of the bytes."""


class Dot(NamedTuple):
    """One figure of one row; `fitted`: coefficients were fitted to the row."""

    measured: float
    simulated: float
    system: str
    fitted: bool

    @property
    def error(self) -> float:
        """The relative error."""
        return self.simulated / self.measured - 1.0


@dataclass(frozen=True)
class Panel:
    """One plot. `band`: what lies within this error is shaded, a `relative` or an absolute one."""

    title: str
    unit: str
    dots: Sequence[Dot]
    band: float = 0.1
    relative: bool = True

    @property
    def logarithmic(self) -> bool:
        """Whether its axes are: what is relative and spans more than a factor of WIDE."""
        values = [value for dot in self.dots for value in dot[:2] if value > 0.0]
        return self.relative and bool(values) and max(values) > WIDE * min(values)

    @property
    def shown(self) -> list[Dot]:
        """The dots that the axes can show: logarithmic ones have no zero."""
        return [dot for dot in self.dots if not self.logarithmic or min(dot[:2]) > 0.0]

    @property
    def heading(self) -> str:
        """Its title, its band, and how many dots are not shown."""
        hidden = len(self.dots) - len(self.shown)
        band = f"±{100 * self.band:g} %" if self.relative else f"±{self.band:g}"
        return f"{self.title}, {band}" + (f", {hidden} at zero not shown" if hidden else "")

    @property
    def limits(self) -> tuple[float, float]:
        """The ends of both axes, with room around the dots."""
        values = [value for dot in self.shown for value in dot[:2]] or [1.0]
        low, high = min(values), max(values)
        if self.logarithmic:
            room = (high / low) ** 0.06
            return low / room, high * room
        room = 0.06 * (high - low) or 0.1
        return low - room, high + room

    def around(self, value: float) -> tuple[float, float]:
        """The ends of the band at a measured value."""
        off = self.band * value if self.relative else self.band
        return value - off, value + off


@dataclass(frozen=True)
class Plot:
    """A picture of panels beside and below each other, and the name of its file."""

    name: str
    title: str
    panels: Sequence[Panel]

    @property
    def systems(self) -> list[str]:
        """All systems that it shows, in the order of their colours."""
        return sorted({dot.system for panel in self.panels for dot in panel.dots})


def draw(plot: Plot, path: Path) -> None:
    """Write a plot as PNG: the same dots give the same bytes."""
    across = min(len(plot.panels), 2)
    down = math.ceil(len(plot.panels) / across)
    colours = dict(zip(plot.systems, PALETTE, strict=False))
    handles = _legend(plot, colours)
    length_in = sum(0.7 + LETTER_IN * len(handle.get_label()) for handle in handles)
    lines = max(math.ceil(length_in / (across * SIDE)), 1)
    columns = max(math.ceil(len(handles) / lines), 1)
    legend_in = lines * LINE_IN
    size = (across * SIDE, down * SIDE + legend_in + 0.5)
    figure = Figure(figsize=size, layout="constrained")
    axes = figure.subplots(down, across, squeeze=False)
    for ax, panel in zip(axes.flat, plot.panels, strict=False):
        _panel(ax, panel, colours)
    for ax in axes.flat[len(plot.panels) :]:
        ax.set_visible(False)
    figure.suptitle(plot.title, fontsize="medium", color=INK)
    figure.legend(handles=handles, loc="outside lower center", ncols=columns, frameon=False, fontsize="small")
    _save(figure, path)


def _save(figure: Figure, path: Path) -> None:
    """Write a figure with few colours, and without matplotlib's name and version."""
    drawn = BytesIO()
    figure.savefig(drawn, format="png", dpi=DPI)
    Image.open(drawn).convert("RGB").quantize(TONES).save(path, format="PNG", optimize=True)


def _panel(ax: Axes, panel: Panel, colours: dict[str, str]) -> None:
    low, high = ends = panel.limits
    below, above = zip(panel.around(low), panel.around(high), strict=True)
    ax.fill_between(ends, below, above, color=BAND, linewidth=0, zorder=0)
    ax.plot(ends, ends, color=INK, linewidth=0.8, zorder=1)
    for fitted, system in product((False, True), colours):
        own = [dot[:2] for dot in panel.shown if (dot.fitted, dot.system) == (fitted, system)]
        if own:
            ax.plot(*zip(*own, strict=True), color=colours[system], **_marker(fitted))
    if panel.logarithmic:
        ax.set(xscale="log", yscale="log")
    ax.set(xlim=ends, ylim=ends, aspect="equal")
    for axis in (ax.xaxis, ax.yaxis):
        _ticks(axis, panel)
    ax.set_title(panel.heading, fontsize="small", color=INK)
    ax.set_xlabel(f"measured ({panel.unit})" if panel.unit else "measured", fontsize="small")
    ax.set_ylabel(f"simulated ({panel.unit})" if panel.unit else "simulated", fontsize="small")
    plain(ax, "both", linewidth=0.6)
    ax.tick_params(labelsize="small")


def _marker(fitted: bool) -> dict[str, Any]:
    if fitted:
        return {"marker": "o", "markersize": 5, "markerfacecolor": "none", "linestyle": "none"}
    return {"marker": "o", "markersize": 4, "markeredgewidth": 0, "alpha": 0.6, "linestyle": "none"}


def _ticks(axis: Axis, panel: Panel) -> None:
    if panel.logarithmic:
        low, high = panel.limits
        axis.set_major_locator(LogLocator(subs=(1, 2, 5) if high < NEAR * low else (1,)))
        axis.set_minor_formatter(NullFormatter())
    else:
        axis.set_major_locator(MaxNLocator(6))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.6g}"))


def _legend(plot: Plot, colours: dict[str, str]) -> list[Any]:
    found: list[Any] = [Patch(color=colours[system], label=system) for system in plot.systems]
    fitted = {dot.fitted for panel in plot.panels for dot in panel.dots}
    for which, label in ((False, "predicted"), (True, "fitted to this row")):
        if which in fitted:
            found.append(Line2D([], [], color=INK, label=label, **_marker(which)))
    return found
