"""The picture of a replay: every iteration, every request, and what was running when."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import matplotlib
import numpy as np
import pandas as pd

from profiler.replay.compare import Compared
from simlora.report.colours import AMBER, BLUE, INK

matplotlib.use("Agg")
from matplotlib import pyplot as plt

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def draw(compared: Compared, path: Path) -> None:
    """Write iterations (measured over predicted), latencies and running requests, real beside simulated."""
    figure, axes = plt.subplots(1, 3, figsize=(13, 4), layout="constrained")
    _iterations(axes[0], compared.iterations)
    _latencies(axes[1], compared)
    _running(axes[2], compared)
    for ax in axes:
        ax.spines[["top", "right"]].set_visible(False)
        ax.tick_params(labelsize="small")
        ax.legend(frameon=False, fontsize="small")
    figure.savefig(path, dpi=150)
    plt.close(figure)


def _iterations(ax: Axes, table: pd.DataFrame) -> None:
    for colour, (kind, own) in zip((BLUE, AMBER), table.groupby("kind"), strict=False):
        ax.plot(
            1e3 * own["predicted_s"], 1e3 * own["seconds"], ".", color=colour, markersize=3, label=str(kind)
        )
    most = 1.05 * 1e3 * float(table[["predicted_s", "seconds"]].max().max())
    ax.plot([0, most], [0, most], color=INK, linewidth=0.8)
    ax.set(
        xlim=(0, most), ylim=(0, most), xlabel="predicted, ms", ylabel="on the device, ms", title="iterations"
    )


def _latencies(ax: Axes, compared: Compared) -> None:
    most = 0.0
    for colour, name, label in ((BLUE, "ttft_s", "first token"), (AMBER, "latency_s", "last token")):
        for run in compared.runs:
            ax.plot(
                compared.simulated[name], run.requests[name], ".", color=colour, markersize=4, label=label
            )
            label = ""
            most = max(
                most, 1.05 * float(run.requests[name].max()), 1.05 * float(compared.simulated[name].max())
            )
    ax.plot([0, most], [0, most], color=INK, linewidth=0.8)
    ax.set(xlim=(0, most), ylim=(0, most), xlabel="simulated, s", ylabel="on the device, s", title="requests")


def _running(ax: Axes, compared: Compared) -> None:
    for colour, table, label in (
        (BLUE, compared.runs[0].requests, "on the device"),
        (AMBER, compared.simulated, "simulated"),
    ):
        times = np.concatenate([table["admitted_s"], table["finish_s"]])
        change = np.concatenate([np.ones(len(table)), -np.ones(len(table))])
        order = np.lexsort((change, times))  # at one moment some leave before others come
        ax.step(
            times[order], np.cumsum(change[order]), where="post", color=colour, linewidth=1.0, label=label
        )
    ax.set(xlabel="time, s", ylabel="running requests", title="the batch", ylim=(0, None))
