"""The picture of a sweep."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from simlora.metrics.saturation import PAST
from simlora.metrics.slo import ATTAINMENT
from simlora.report.colours import AMBER, BLUE, TEAL

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLOURS = (BLUE, AMBER, TEAL, "#b3382c", "#7b4fc9", "#5c6773", "#c2478f", "#3d7a1f")


def plot_sweep(
    means: pd.DataFrame, figure: str, x: str, others: Sequence[str], ax: Axes | None = None
) -> Axes:
    """Draw a figure over `x` with its intervals, a line for each combination of the `others`.

    Points past saturation are open: what they show is how long the runs were.
    """
    if ax is None:
        from matplotlib import pyplot

        ax = pyplot.subplots(figsize=(7, 4.2), layout="constrained")[1]
    seen = means["estimate"].dropna()
    floor = (
        float(seen.min()) / 3 if len(seen) and seen.min() > 0 else -np.inf
    )  # or an axis of logarithms ends nowhere
    groups = means.groupby(list(others), sort=False) if others else [((), means)]
    for order, (key, own) in enumerate(groups):
        colour = COLOURS[order % len(COLOURS)]
        label = ", ".join(f"{value}" for value in key) if others else None
        at, value = own[x], own["estimate"]
        ax.plot(at, value, color=colour, linewidth=1.6, label=label)
        ax.fill_between(at, np.maximum(own["low"], floor), own["high"], color=colour, alpha=0.15, linewidth=0)
        past = (own["load"] == PAST).to_numpy()
        for chosen, face in ((~past, colour), (past, "white")):
            ax.scatter(at[chosen], value[chosen], s=22, facecolor=face, edgecolor=colour, zorder=3)
    if figure != ATTAINMENT and len(seen) and seen.min() > 0 and seen.max() > 50 * seen.min():
        ax.set_yscale("log")
    if (
        pd.api.types.is_numeric_dtype(means[x])
        and (means[x] > 0).all()
        and means[x].max() > 20 * means[x].min()
    ):
        ax.set_xscale("log")
    ax.set(xlabel=x, ylabel=figure)
    if others:
        ax.legend(frameon=False, fontsize=9)
    ax.grid(axis="y", color="#e6e8eb")
    ax.spines[["top", "right"]].set_visible(False)
    return ax
