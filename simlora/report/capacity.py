"""The picture of a search for a capacity."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import pandas as pd

from simlora.metrics.slo import ATTAINMENT
from simlora.report.colours import BLUE, INK, TEAL

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def plot_capacity(
    runs: pd.DataFrame,
    figure: str,
    limit: float,
    value: float,
    interval: tuple[float, float],
    unit: str,
    ax: Axes | None = None,
) -> Axes:
    """Draw the `figure` of all runs over what was varied: filled where the SLO was met; its limit and the answer.

    The axis of the figure is logarithmic where it spans more than a factor of 20, but not of a share.
    """
    if ax is None:
        from matplotlib import pyplot

        ax = pyplot.subplots(figsize=(7, 4.2), layout="constrained")[1]
    for _, own in runs.groupby("seed"):
        ax.plot(own["value"], own[figure], color=BLUE, alpha=0.35, linewidth=1)
    for met, name in ((True, "SLO met"), (False, "not met")):
        own = runs[runs["met"] == met]
        ax.scatter(
            own["value"],
            own[figure],
            s=22,
            color=BLUE,
            facecolor=BLUE if met else "white",
            zorder=3,
            label=name,
        )
    ax.axhline(limit, color=INK, linestyle="--", linewidth=1, label=f"limit: {limit:g}")
    if not math.isnan(interval[0]):
        ax.axvspan(*interval, color=TEAL, alpha=0.15, linewidth=0)
    ax.axvline(value, color=TEAL, linewidth=1.5, label=f"{value:.4g} {unit}")
    seen = runs[figure].dropna()
    if figure != ATTAINMENT and len(seen) and seen.min() > 0 and seen.max() > 20 * seen.min():
        ax.set_yscale("log")
    ax.set(xlabel=unit, ylabel=figure)
    ax.legend(frameon=False, fontsize=9)
    ax.spines[["top", "right"]].set_visible(False)
    return ax


def plot_capacities(found: pd.DataFrame, unit: str, ax: Axes) -> None:
    """Draw the answer of each configuration with its interval, the first one at the top."""
    places = list(range(len(found)))
    for place, row in zip(places, found.to_dict("records"), strict=True):
        if not math.isnan(row["low"]):
            ax.plot([row["low"], row["high"]], [place, place], color=BLUE, alpha=0.4, linewidth=5)
        ax.scatter([row["value"]], [place], s=36, color=BLUE, zorder=3)
    ax.set_yticks(places, found["configuration"].tolist(), fontsize=9)
    ax.set_ylim(len(found) - 0.5, -0.5)
    ax.set_xlim(left=0)
    ax.set_xlabel(unit)
    ax.grid(axis="x", color="#e6e8eb")
    ax.spines[["top", "right"]].set_visible(False)
