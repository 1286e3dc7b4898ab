"""The picture of a plan: attainment over cost of all that was looked at, and the plans by number."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd

from simlora.metrics.slo import ATTAINMENT

if TYPE_CHECKING:
    from simlora.planning.planned import Planned

MARKERS = "os^Dv<>p"
COLOURS = ("#3b6fb6", "#d1792b", "#4a9a5b", "#b4464b", "#7a62a8", "#8a6d4f", "#c76aa0", "#6f7782")


def draw(by_candidate: pd.DataFrame, plans: Sequence[Planned], attainment: float | None, path: Path) -> None:
    """Draw a dot a candidate, with its worst seed's attainment, and a ring around each plan, into a PNG file.

    `attainment` is the share that is to be kept, None where the SLO is of other figures.
    """
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    figure, ax = plt.subplots(figsize=(7.5, 4.2), layout="constrained")
    kinds = by_candidate.groupby(["engine", "gpu", "gpus_per_replica"], sort=False)
    for (marker, colour), ((engine_name, gpu, gpus), group) in zip(
        product(MARKERS, COLOURS), kinds, strict=False
    ):
        label = f"{engine_name} on {gpus} {gpu}"
        found = group["usd_per_hour"], 100 * group[ATTAINMENT]
        ax.scatter(*found, s=14, marker=marker, color=colour, alpha=0.55, label=label)
    frontier = by_candidate.groupby("usd_per_hour")[ATTAINMENT].max().cummax()
    ax.step(
        frontier.index,
        100 * frontier,
        where="post",
        color="#999999",
        linewidth=1.0,
        zorder=0,
        label="the most",
    )
    for order, each in enumerate(plans, 1):
        x, y = each.candidate.usd_per_hour, 100 * each.figure(ATTAINMENT)[1]
        ax.scatter([x], [y], s=110, facecolors="none", edgecolors="black", linewidths=1.2)
        side = -12 if order % 2 else 6
        ax.annotate(str(order), (x, y), xytext=(side, 6), textcoords="offset points")
    if attainment is not None:
        ax.axhline(100 * attainment, color="black", linewidth=0.8, linestyle=(0, (5, 3)))
    ax.set(xlabel="USD per hour", ylabel="requests within the SLO (%)")
    ax.set_title(
        "All that was looked at, its worst seed in its longest runs; the plans by number",
        fontsize="medium",
    )
    ax.set_ylim(-3, 109)
    ax.set_yticks(range(0, 101, 20))
    ax.spines[["top", "right"]].set_visible(False)
    figure.legend(loc="outside lower center", ncols=3, frameon=False, fontsize="small")
    figure.savefig(path, dpi=150)
    plt.close(figure)
