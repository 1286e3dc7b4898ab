"""Draw CaraServe's kernels and popularity, from the calibration: `python -m experiments.caraserve.kernels [--out DIR]`.

Figures 4, 5 and 9 (decode steps over batch and ranks), 12 (popularity) and 18 (LoRA on CPU cores), from the calibration
a10-llama_2_7b-tp1 and the workload that the other figures use.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
from matplotlib import pyplot as plt
from matplotlib.axes import Axes

from experiments.caraserve.calibration import FIGURE_5_S, NAME, SLO_S, decode_s
from experiments.studies.command import into, program
from experiments.studies.draw import COLOURS, INK, plain, save
from simlora.latency import calibration as calibrations
from simlora.latency.cpu_lora import CpuLora
from simlora.workload.popularity import LogNormal

BLUE, AMBER, TEAL, RED = COLOURS[:4]
KERNELS = {"bgmv": "BGMV", "mbgmv": "MBGMV"}
RANKS = (8, 16, 32, 64)
DRAWS = 2_000_000


def figure_4() -> plt.Figure:
    """Decode latency over the batch, of one rank, and of mixes of two."""
    figure, axes = plt.subplots(1, 2, figsize=(9, 3.8), layout="constrained", sharey=True)
    batches = np.arange(1, 33)
    for ax, (kernel, title) in zip(axes, KERNELS.items(), strict=True):
        for rank, colour in zip(RANKS, (INK, TEAL, AMBER, BLUE), strict=True):
            times = [1e3 * decode_s(kernel, [rank] * int(n)) for n in batches]
            ax.plot(batches, times, color=colour, label=f"rank {rank}")
        mixed = [1e3 * decode_s(kernel, [64] + [8] * (int(n) - 1)) for n in batches]
        ax.plot(batches, mixed, color=RED, linestyle="--", label="one of 64, others of 8")
        _axes(ax, f"{title}", "requests in the batch", "decode step (ms)")
    axes[0].legend(frameon=False, fontsize="small")
    figure.suptitle("Decode latency over batch and ranks · CaraServe, Figure 4", fontsize="medium")
    return figure


def figure_5() -> plt.Figure:
    """The example of the router: both instances before and after, and what was published."""
    figure, axes = plt.subplots(1, 2, figsize=(9, 3.8), layout="constrained", sharey=True)
    instances = {"1: 24 of rank 32": [32] * 24, "2: 16 of rank 64": [64] * 16}
    for ax, (kernel, title) in zip(axes, KERNELS.items(), strict=True):
        at = np.arange(len(instances))
        before, after = (
            [1e3 * decode_s(kernel, [*ranks, *more]) for ranks in instances.values()] for more in ([], [64])
        )
        ax.bar(at - 0.2, before, 0.38, color=BLUE, label="as it is")
        ax.bar(at + 0.2, after, 0.38, color=AMBER, label="with one more of rank 64")
        published = [1e3 * seconds for seconds in FIGURE_5_S[kernel]]
        ax.plot(at - 0.2, published, "D", color="white", markeredgecolor=INK, markersize=8, label="published")
        ax.axhline(1e3 * SLO_S, color=RED, linewidth=1)
        ax.text(1.45, 1e3 * SLO_S, "SLO ", color=RED, ha="right", va="bottom", fontsize="small")
        ax.set_xticks(at, list(instances))
        _axes(ax, title, "instance", "decode step (ms)")
        ax.set_ylim(33, 39.5)
    axes[0].legend(frameon=False, fontsize="small", loc="upper left")
    figure.suptitle("Where a request of rank 64 goes · CaraServe, Figure 5", fontsize="medium")
    return figure


def figure_9() -> plt.Figure:
    """Decode latency over what each kernel's model is linear in."""
    figure, axes = plt.subplots(1, 2, figsize=(9, 3.8), layout="constrained", sharey=True)
    rng = np.random.default_rng(0)
    for ax, (kernel, title) in zip(axes, KERNELS.items(), strict=True):
        batches = [rng.choice(RANKS, n).tolist() for n in range(1, 33) for _ in range(4)]
        work = [len(ranks) * max(ranks) if kernel == "bgmv" else sum(ranks) for ranks in batches]
        ax.plot(
            work,
            [1e3 * decode_s(kernel, ranks) for ranks in batches],
            ".",
            color=BLUE,
            label="random batches",
        )
        points = (24 * 32, 16 * 64)
        published = [1e3 * seconds for seconds in FIGURE_5_S[kernel]]
        ax.plot(points, published, "D", color="white", markeredgecolor=INK, markersize=8, label="Figure 5")
        wide = "requests x highest rank" if kernel == "bgmv" else "sum of ranks"
        _axes(ax, title, wide, "decode step (ms)")
    axes[0].legend(frameon=False, fontsize="small")
    figure.suptitle("What a decode step is linear in · CaraServe, Figure 9", fontsize="medium")
    return figure


def figure_12() -> plt.Figure:
    """Share of requests of each adapter, most popular first."""
    figure, ax = plt.subplots(figsize=(6.5, 3.8), layout="constrained")
    for sigma, colour in ((1.0, AMBER), (2.0, TEAL), (4.08, RED)):
        drawn = LogNormal(sigma).draw(np.random.default_rng(0), 512, DRAWS)
        shares = np.sort(np.bincount(drawn, minlength=512))[::-1] / DRAWS
        shown = shares > 0
        ax.plot(np.arange(1, 513)[shown], 100 * shares[shown], color=colour, label=f"sigma {sigma:g}")
    ax.set_yscale("log")
    _axes(ax, "", "adapter, most popular first", "requests (%)")
    ax.legend(frameon=False, fontsize="small", title="spread (natural logarithm)")
    figure.suptitle("Popularity of 512 adapters · CaraServe, Figure 12", fontsize="medium")
    return figure


def figure_18() -> plt.Figure:
    """x A B of all layers on one core over the tokens, and of 128 tokens over the cores."""
    figure, axes = plt.subplots(1, 2, figsize=(9, 3.8), layout="constrained")
    calibration = calibrations.load(NAME)
    one_core = CpuLora(_with(calibration, {"cpu_lora.tokens_per_core": 1e9}), layers=32)
    tokens = np.arange(1, 129)
    for rank, colour in zip(RANKS, (INK, TEAL, AMBER, BLUE), strict=True):
        axes[0].plot(
            tokens,
            [32e3 * one_core.layer_s(int(n), rank) for n in tokens],
            color=colour,
            label=f"rank {rank}",
        )
    _axes(axes[0], "one core", "tokens", "32 layers (ms)")
    axes[0].legend(frameon=False, fontsize="small")
    cores = (1, 2, 4, 8, 16)
    for rank, colour in zip(RANKS, (INK, TEAL, AMBER, BLUE), strict=True):
        times = [
            32e3
            * CpuLora(_with(calibration, {"cpu_lora.tokens_per_core": 128 / n}), layers=32).layer_s(128, rank)
            for n in cores
        ]
        axes[1].plot(cores, times, "o-", color=colour)
    _axes(axes[1], "128 tokens", "cores", "32 layers (ms)")
    axes[1].set_xscale("log", base=2)
    axes[1].set_xticks(cores, map(str, cores))
    figure.suptitle("LoRA on CPU cores, measured on one core · CaraServe, Figure 18", fontsize="medium")
    return figure


FIGURES = {
    "figure_4": figure_4,
    "figure_5": figure_5,
    "figure_9": figure_9,
    "figure_12": figure_12,
    "figure_18": figure_18,
}


def _with(calibration: calibrations.Calibration, changes: dict[str, float]) -> calibrations.Calibration:
    return replace(calibration, coefficients={**calibration.coefficients, **changes})


def _axes(ax: Axes, title: str, x: str, y: str) -> None:
    ax.set(xlabel=x, ylabel=y, title=title)
    plain(ax)


@program(into("outputs/caraserve"))
def main(folder: Path) -> None:
    """Draw the figures and print their numbers."""
    for name, draw in FIGURES.items():
        save(draw(), folder / f"{name}.png")
