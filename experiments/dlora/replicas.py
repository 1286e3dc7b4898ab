"""Draw what single replicas see: `python -m experiments.dlora.replicas [--out DIR]`.

Figures 2(b), which share of their time requests queue on each replica, and 13, how busy replicas and their memory are.
A summary does not tell these apart, so the runs of the two studies are made anew here; that takes a minute.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

import numpy as np
import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.claims.spots import Curve
from experiments.dlora.paper import FOLDER, SEEDS
from experiments.studies.command import command, into
from experiments.studies.draw import COLOURS, INK, plain, save
from experiments.studies.points import Point
from experiments.studies.several import runs
from experiments.studies.study import Study, read
from experiments.studies.tables import of_run
from simlora.api import simulate
from simlora.results.result import Result

SPREAD = 2.6
"""That of the other figures."""
PUBLISHED = 8.0
"""The artifact plots 87.09 % on the worst replica and 10.94 % on the best."""
RATE_RPS = 18
"""Of Figure 13: where dLoRA's time per token is nearest to the SLO, of the study's rates."""


class Used(NamedTuple):
    """Shares of the time until the last arrival, or of the pool, by replica: busy, and in use on average."""

    busy: list[float]
    memory: list[float]


def queueing(point: Point) -> list[float]:
    """Return the share of queueing in the time of each replica's requests, by replica; of one without any nothing.

    It is the mean queueing delay over the mean latency, as the artifact plots it (`queueing_ratio`).
    """
    found: list[float] = of_run(point, _queueing)
    return found


def _queueing(result: Result) -> list[float]:
    by_replica = result.requests.groupby("replica")[["queue_s", "latency_s"]].mean()
    found: list[float] = (by_replica["queue_s"] / by_replica["latency_s"]).tolist()
    return found


def imbalance() -> list[float]:
    """Return the share of queueing on Figure 2(b)'s worst replica over that on the best, the mean over seeds."""
    shares = map(queueing, _runs(_study("figure_2b"), "vllm_uniform", SPREAD))
    return [fmean(max(each) / min(each) for each in shares)]


def used(point: Point) -> Used:
    """Return how busy replicas are and how full their pools until the last request has come, from the timeline."""
    found = simulate(
        [each for each in point.overrides if not each.startswith("timeline=")] + ["timeline=true"]
    )
    end_s = float(found.requests["arrival_s"].max())
    shares = [_used(samples, end_s) for _, samples in found.timeline.groupby("replica")]
    return Used([busy for busy, _ in shares], [memory for _, memory in shares])


def _used(samples: pd.DataFrame, end_s: float) -> tuple[float, float]:
    at = samples["time_s"].to_numpy().clip(max=end_s)
    lasts_s = np.diff(at, append=end_s)
    busy = (samples["running"].to_numpy() > 0) * lasts_s
    full = (samples["kv_tokens"] + samples["adapter_tokens"]).to_numpy() / samples[
        "capacity_tokens"
    ].to_numpy()
    return float(busy.sum()) / end_s, float((full * lasts_s).sum()) / end_s


def _study(name: str) -> Study:
    return read(FOLDER / f"{name}.yaml")


def _runs(study: Study, series: str, x: float) -> list[Point]:
    return runs(Curve(study, study.panels[0].name, series, study.metrics[0]).at(x).point, SEEDS)


def figure_2b() -> Figure:
    """The replicas of one run, and how far the worst and the best are apart over the spread of functions."""
    study = _study("figure_2b")
    figure, (bars, lines) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
    wide = 0.8 / len(study.series)
    for index, (colour, series) in enumerate(zip(COLOURS, study.series, strict=False)):
        by_spread = {x: [queueing(each) for each in _runs(study, series.name, x)] for x in study.x.values}
        # Of each run the worst replica first, and so on.
        ranked = [sorted(each, reverse=True) for each in by_spread[SPREAD]]
        places = range(min(map(len, ranked)))
        means = [100 * fmean(each[place] for each in ranked) for place in places]
        bars.bar(
            [p + (index - 1) * wide for p in places], means, 0.92 * wide, color=colour, label=series.title
        )
        ratios = [[max(each) / min(each) for each in by_spread[x]] for x in study.x.values]
        lines.plot(study.x.values, list(map(fmean, ratios)), "o-", color=colour, markersize=4)
        lines.fill_between(
            study.x.values,
            list(map(min, ratios)),
            list(map(max, ratios)),
            color=colour,
            alpha=0.16,
            linewidth=0,
        )
    _axes(
        bars,
        f"spread {SPREAD:g}, mean of {len(SEEDS)} seeds",
        "replica, worst first",
        "queueing (% of the time of its requests)",
    )
    bars.legend(frameon=False, fontsize="small")
    lines.axhline(PUBLISHED, color=INK, linewidth=0.9, linestyle=(0, (5, 3)))
    lines.text(study.x.values[-1], 1.1 * PUBLISHED, "published: up to 8.0", ha="right", fontsize="small")
    lines.set_yscale("log")
    _axes(lines, f"mean, least to most of {len(SEEDS)} seeds", study.x.label, "worst replica over best")
    figure.suptitle(f"{study.title} · {study.source}", fontsize="medium")
    return figure


def figure_13() -> Figure:
    """Busy share and memory in use, replica by replica, beside the optimum."""
    study = _study("figure_13")
    figure, axes = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
    wide = 0.8 / len(study.series)
    for index, (colour, series) in enumerate(zip(COLOURS, study.series, strict=False)):
        found = [used(each) for each in _runs(study, series.name, RATE_RPS)]
        for ax, by_seed in zip(
            axes, ([one.busy for one in found], [one.memory for one in found]), strict=True
        ):
            places = range(len(by_seed[0]))
            means = [100 * fmean(each[place] for each in by_seed) for place in places]
            ax.bar(
                [p + (index - 1) * wide for p in places], means, 0.92 * wide, color=colour, label=series.title
            )
    _axes(axes[0], "busy until the last arrival", "replica", "time (%)")
    _axes(axes[1], "KV and adapters", "replica", "pool in use, mean (%)")
    axes[0].set_ylim(0, 105)
    axes[1].set_ylim(0, 1.35 * axes[1].get_ylim()[1])
    axes[1].legend(frameon=False, fontsize="small")
    figure.suptitle(f"{study.title}, {RATE_RPS} requests/s · {study.source}", fontsize="medium")
    return figure


def lines() -> Iterator[str]:
    """Say what the figures show, in numbers."""
    ratios = ", ".join(f"{ratio:.3g}" for ratio in imbalance())
    yield f"Figure 2(b), share of queueing, worst replica over best, by seed: {ratios}; {PUBLISHED:g} in the paper"
    study = _study("figure_13")
    for series in study.series:
        found = [used(each) for each in _runs(study, series.name, RATE_RPS)]
        busy, memory = ([share for one in found for share in getattr(one, name)] for name in Used._fields)
        yield (
            f"Figure 13, {series.title}, {RATE_RPS} requests/s: busy {fmean(busy):.1%} ({min(busy):.1%} to "
            f"{max(busy):.1%}), pool in use {fmean(memory):.1%} ({min(memory):.1%} to {max(memory):.1%})"
        )


FIGURES = {"figure_2b_replicas": figure_2b, "figure_13_replicas": figure_13}


def _axes(ax: Axes, title: str, x: str, y: str) -> None:
    ax.set_xlabel(x, fontsize="small")
    ax.set_ylabel(y, fontsize="small")
    ax.set_title(title, fontsize="small")
    ax.tick_params(labelsize="small")
    plain(ax)


@command(into("outputs/dlora"))
def main(folder: Path) -> None:
    """Draw the figures and print their numbers."""
    for stem, draw in FIGURES.items():
        save(draw(), folder / f"{stem}.png")
    for line in lines():
        print(line)
