"""LoRAServe's Figure 8: `python -m experiments.loraserve.shares [--out DIR]`.

Which share of the requests each adapter has. The five busiest of over a thousand have 72.4 % in a week of production;
`workload/popularity=top_heavy` is told so, and this looks at what it draws for a thousand. Beside it stand a single
power law that gives the five as much, and the trace that LoRAServe's evaluation is made again with, whose hundred
adapters are made from five (section V-E).
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib import pyplot as plt
from matplotlib.figure import Figure
from matplotlib.ticker import StrMethodFormatter
from numpy.typing import NDArray
from scipy.optimize import brentq

from experiments.scenarios import scenario
from experiments.studies.command import command, into
from experiments.studies.draw import COLOURS, legend_below, plain, save
from simlora.workload.popularity import Zipf

Floats = NDArray[np.float64]
TOP, ADAPTERS, REQUESTS = 5, 1000, 250_138
PUBLISHED = 72.4
"""Share of the five busiest in %; the text has it as what 27.6 % leave."""
WEEK = (
    "workload=loraserve",
    "workload/popularity=top_heavy",
    f"workload.adapters={ADAPTERS}",
    "workload.duration_s=null",
    f"workload.requests={REQUESTS}",
)
EVALUATION = ("workload=loraserve_production", "workload.adapters=100")


def drawn(workload: Sequence[str]) -> Floats:
    """Return the shares of the requests of a workload's trace in %, the busiest adapter's first [adapters]."""
    trace = scenario(["system=slora_random", *workload]).trace
    counts = np.sort(np.bincount(trace.adapter, minlength=len(trace.adapters)))[::-1]
    shares: Floats = 100 * counts / counts.sum()
    return shares


def power_law() -> tuple[float, Floats]:
    """Return the exponent of the one power law with which the five have what was published, and its shares in %."""

    def shares(exponent: float) -> Floats:
        rates = Zipf(exponent).rates(ADAPTERS)
        found: Floats = 100 * rates / rates.sum()
        return found

    exponent = float(brentq(lambda x: top(shares(x)) - PUBLISHED, 0.5, 5.0))
    return exponent, shares(exponent)


def top(shares: Floats) -> float:
    """Return the share of the five busiest adapters in %."""
    return float(shares[:TOP].sum())


def of_the_week() -> float:
    """Return the claim ls-top5, which the workload is told: what is drawn of it."""
    return top(drawn(WEEK))


def draw(week: Floats, law: Floats, exponent: float, evaluation: Floats) -> Figure:
    """Draw the share of each adapter at the left, and of all up to it at the right."""
    figure, axes = plt.subplots(1, 2, figsize=(8.8, 3.8), layout="constrained")
    curves = {
        f"a week, {len(week):,} adapters": week,
        f"one power law, exponent {exponent:.2f}": law,
        f"the evaluation's trace, {len(evaluation)} adapters": evaluation,
    }
    for colour, (label, shares) in zip(COLOURS, curves.items(), strict=False):
        place = np.arange(1, len(shares) + 1)
        axes[0].plot(place, np.where(shares > 0, shares, np.nan), color=colour, linewidth=1.6, label=label)
        axes[1].plot(place, np.cumsum(shares), color=colour, linewidth=1.6)
    axes[1].plot(
        [TOP], [PUBLISHED], marker="D", markersize=8, color="black", linestyle="none", markerfacecolor="none"
    )
    axes[0].plot(
        [],
        [],
        marker="D",
        markersize=8,
        color="black",
        linestyle="none",
        markerfacecolor="none",
        label="published",
    )
    axes[0].set_yscale("log")
    axes[0].set_ylabel("requests to this adapter (%)", fontsize="small")
    axes[1].set_ylim(0, 105)
    axes[1].set_ylabel("requests to all up to it (%)", fontsize="small")
    for ax in axes:
        ax.set_xscale("log")
        ax.set_xlabel("adapters, the busiest first", fontsize="small")
        ax.xaxis.set_major_formatter(StrMethodFormatter("{x:,g}"))
        plain(ax)
        ax.tick_params(labelsize="small")
    axes[0].yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    legend_below(figure, axes[0], 4)
    figure.suptitle("LoRAServe, Figure 8 · share of requests of each adapter", fontsize="medium")
    return figure


@command(into("outputs/loraserve"))
def main(folder: Path) -> None:
    """Draw the figures and print their numbers."""
    week, evaluation = drawn(WEEK), drawn(EVALUATION)
    exponent, law = power_law()
    print(f"top_heavy, {ADAPTERS:,} adapters, {REQUESTS:,} requests: {shown(week)}; published {PUBLISHED} %")
    print(f"One power law with an exponent of {exponent:.2f}: {shown(law)}")
    print(f"loraserve_production, {len(evaluation)} adapters: {shown(evaluation)}")
    path = folder / "figure_8.png"
    figure = draw(week, law, exponent, evaluation)
    save(figure, path)


def shown(shares: Floats) -> str:
    """Say what the five busiest have, and the sixth."""
    return f"the five busiest have {top(shares):.1f} %, the sixth {shares[TOP]:.2f} %"


if __name__ == "__main__":
    sys.exit(main())
