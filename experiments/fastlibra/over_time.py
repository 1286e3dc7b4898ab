"""What FastLibra's authors show over time: `python -m experiments.fastlibra.over_time [--out DIR]`.

Figure 2: TTFT of vLLM (static) in three scenarios with Llama-7B, and its mean, which they print. Figure 4: how full the
two parts of its HBM are in translation. Figure 14: what HBM holds with Llama-13B, 100 adapters and 1.6 requests/s on
average in chatbot, whose load they describe: low until 400 s, rising until 900, highest until 1,300, then lower, which
is the shape of figure_11_chatbot.yaml. Half an hour each, as theirs. How their loads go otherwise, and how high, they
do not say: in Figures 2 and 4 ours go up and down twice, around the rates at which FastLibra passes 500 ms.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.fastlibra.reductions import SCENARIOS, study
from experiments.studies.command import command, into
from experiments.studies.draw import COLOURS, GRID, save
from experiments.studies.points import Point, written
from experiments.studies.running import figure_of, run_all
from simlora.api import simulate
from simlora.results.result import Result

DURATION_S = 1800.0
TWICE = [1, 2, 3, 2, 1, 2, 3, 2, 1]
"""The load of Figures 2 and 4: relative, of nine parts of the run."""
RATES = {"chatbot": 1.6, "translation": 5.0, "agent": 4.5}
"""Requests/s with Llama-7B, the means: in the busiest part a half more."""
PUBLISHED_MS = {"chatbot": 1032.4, "translation": 1905.1, "agent": 730.8}
SYSTEMS = {"fastlibra": "FastLibra", "vllm_static": "vLLM (static)", "slora": "S-LoRA"}
SHIFT_S = 1100.0
"""When adapters change in the authors' translation (section 2.3.2)."""
STRETCH_S = 30.0
"""Of which means are drawn."""


def simulated(system: str, scenario: str, settings: Mapping[str, Any]) -> Result:
    """Run a scenario for half an hour with 100 adapters."""
    base = {**_half_an_hour(scenario), "report": False, "progress": False}
    return simulate(
        [f"system={system}", *(f"{key}={written(value)}" for key, value in {**base, **settings}.items())]
    )


def _half_an_hour(scenario: str) -> dict[str, Any]:
    return {**study(scenario, 100).settings, "workload.duration_s": DURATION_S}


def _load(scenario: str) -> dict[str, Any]:
    return {"workload.rate_rps": RATES[scenario], "workload.shape": TWICE}


def vllm(scenario: str) -> Result:
    """Return the run of Figure 2."""
    return simulated("vllm_static", scenario, _load(scenario))


def vllm_settings(scenario: str) -> dict[str, Any]:
    """Return that run's settings."""
    return {"system": "vllm_static", **_half_an_hour(scenario), **_load(scenario)}


def ttft_ms() -> list[float]:
    """Return the claim fl-vllm-ttft: mean TTFT of each scenario."""
    return [1e3 * number for number in _vllm_figures("ttft_s.mean")]


def invalid() -> list[float]:
    """Return the claim fl-invalid: the share of history KV without its adapter, the mean over scenarios, in %."""
    return [100 * fmean(_vllm_figures("kv.invalid_share"))]


def _vllm_figures(metric: str) -> list[float]:
    """Return a figure of Figure 2's run of each scenario. Runs what was not run before."""
    here = [Point("", scenario, "vllm_static", 0, vllm_settings(scenario)) for scenario in SCENARIOS]
    found = run_all(here)
    return [figure_of(found, point, metric) for point in here]


class Levels(NamedTuple):
    """Means over stretches of time `[stretches]`, by name; times are their ends."""

    times_s: np.ndarray
    of: dict[str, np.ndarray]


def levels(timeline: pd.DataFrame, names: Sequence[str]) -> Levels:
    """Return what a single replica holds, each sample until the next."""
    edges = np.arange(0.0, DURATION_S + STRETCH_S, STRETCH_S)
    at = timeline["time_s"].to_numpy(dtype=float)
    knots = np.concatenate([[0.0], at, [max(at[-1], DURATION_S)]])
    found = {}
    for name in names:
        level = np.concatenate([[0.0], timeline[name].to_numpy(dtype=float)])
        area = np.concatenate([[0.0], np.cumsum(level * np.diff(knots))])
        found[name] = np.diff(np.interp(edges, knots, area)) / STRETCH_S
    return Levels(edges[1:], found)


def by_stretch(requests: pd.DataFrame, column: str) -> pd.Series:
    """Return the mean of those that came in each stretch."""
    return requests.groupby((requests["arrival_s"] // STRETCH_S + 1) * STRETCH_S)[column].mean()


def figure_2(runs: Mapping[str, Result]) -> Figure:
    """TTFT over time."""
    figure, axes = plt.subplots(1, 3, figsize=(12, 3.4), layout="constrained")
    for ax, colour, (scenario, title) in zip(axes, COLOURS, SCENARIOS.items(), strict=False):
        means = by_stretch(runs[scenario].requests, "ttft_s")
        mean_s = float(runs[scenario].requests["ttft_s"].mean())
        ax.step(means.index, means, color=colour)
        ax.axhline(mean_s, color=colour, linewidth=0.8, label=f"mean {1e3 * mean_s:,.0f} ms")
        published_ms = PUBLISHED_MS[scenario]
        label = f"published {published_ms:,.0f} ms"
        ax.axhline(published_ms / 1e3, color="black", linewidth=0.8, linestyle="--", label=label)
        ax.set(title=title, xlabel="time (s)", yscale="log")
        _plain(ax)
    axes[0].set_ylabel("TTFT of vLLM (s)")
    figure.suptitle("FastLibra, Figure 2 · Llama-7B, 100 adapters, means of 30 s", fontsize="medium")
    return figure


def figure_4(run: Result) -> Figure:
    """How full the two parts of HBM are."""
    figure, (parts, demand) = plt.subplots(2, 1, figsize=(7, 4.8), layout="constrained", sharex=True)
    found = levels(run.timeline, ("kv_tokens", "idle_kv_tokens", "adapter_tokens", "capacity_tokens"))
    kv_part = run.summary["replicas"][0]["kv_token_budget"]
    adapter_part = found.of["capacity_tokens"].max() - kv_part
    for name, tokens, part, colour in (
        ("adapters", found.of["adapter_tokens"], adapter_part, COLOURS[1]),
        ("KV", found.of["kv_tokens"], kv_part, COLOURS[0]),
        ("of that running", found.of["kv_tokens"] - found.of["idle_kv_tokens"], kv_part, COLOURS[2]),
    ):
        parts.plot(found.times_s, 100 * tokens / part, color=colour, label=name)
    parts.set(ylabel="of its part (%)", ylim=(0, 105), title="translation: what vLLM's two parts of HBM hold")
    _plain(parts)
    requests = run.requests
    used = requests.groupby((requests["arrival_s"] // 60 + 1) * 60)["adapter"].nunique()
    demand.step(used.index, used, color=COLOURS[1])
    demand.set(ylabel="adapters asked\nfor in a minute", xlabel="time (s)", ylim=(0, None))
    demand.grid(color=GRID)
    figure.suptitle("FastLibra, Figure 4", fontsize="medium")
    return figure


def shift(run: Result) -> str:
    """Say how many adapters are asked for before and after the moment at which the authors see their number change."""
    requests, capacity = run.requests, run.timeline["capacity_tokens"].max()
    before = requests["arrival_s"] < SHIFT_S
    used = (requests.loc[here, "adapter"].nunique() for here in (before, ~before))
    part = capacity - run.summary["replicas"][0]["kv_token_budget"]
    full = run.timeline["adapter_tokens"].max() / part
    return (
        "adapters asked for before {:,.0f} s and after: {}, {} (published 41, 75); ".format(SHIFT_S, *used)
        + f"their part is at most {full:.0%} full"
    )


def figure_14(runs: Mapping[str, Result]) -> Figure:
    """What HBM holds, a column a system, and below it TTFT."""
    figure, axes = plt.subplots(
        2, 3, figsize=(13, 5.6), layout="constrained", sharex=True, sharey="row", height_ratios=(2, 1)
    )
    for column, (system, title) in enumerate(SYSTEMS.items()):
        run = runs[system]
        found = levels(run.timeline, ("kv_tokens", "idle_kv_tokens", "adapter_tokens", "capacity_tokens"))
        capacity = found.of["capacity_tokens"].max()
        shares = {name: 100 * tokens / capacity for name, tokens in found.of.items()}
        running = shares["kv_tokens"] - shares["idle_kv_tokens"]
        axes[0][column].stackplot(
            found.times_s,
            running,
            shares["adapter_tokens"],
            shares["idle_kv_tokens"],
            colors=[COLOURS[0], COLOURS[1], COLOURS[2]],
            labels=["running KV", "adapters", "history KV"],
            alpha=0.85,
        )
        axes[0][column].set(title=title, ylim=(0, 100))
        means = by_stretch(run.requests, "ttft_s")
        axes[1][column].step(means.index, means, color=COLOURS[3])
        axes[1][column].set(yscale="log", xlabel="time (s)", xlim=(0, DURATION_S))
        axes[1][column].grid(color=GRID)
        for ax in axes[:, column]:
            for end_s in (400, 900, 1300):
                ax.axvline(end_s, color="black", linewidth=0.6, linestyle=":")
    axes[0][0].set_ylabel("of HBM beside the model (%)")
    axes[1][0].set_ylabel("TTFT (s)")
    axes[0][0].legend(frameon=True, fontsize="small", loc="upper left")
    figure.suptitle("FastLibra, Figure 14 · Llama-13B on two NPUs, 100 adapters, chatbot", fontsize="medium")
    return figure


def _plain(ax: Axes) -> None:
    ax.grid(color=GRID)
    ax.legend(frameon=False, fontsize="small")


def figures() -> Iterator[tuple[str, Figure, list[str]]]:
    """Yield the figures by name, each with what there is to say of it."""
    runs = {scenario: vllm(scenario) for scenario in SCENARIOS}
    means = [1e3 * float(runs[scenario].requests["ttft_s"].mean()) for scenario in SCENARIOS]
    said = [
        f"{s}: mean {m:,.1f} ms, published {PUBLISHED_MS[s]:,}" for s, m in zip(SCENARIOS, means, strict=True)
    ]
    shares = [runs[scenario].summary["kv"]["invalid_share"] for scenario in SCENARIOS]
    said.append("history KV without its adapter: " + ", ".join(f"{100 * share:.1f} %" for share in shares))
    yield "figure_2", figure_2(runs), said
    yield "figure_4", figure_4(runs["translation"]), [shift(runs["translation"])]
    settings = {
        "model": "llama_13b",
        "replica.tp": 2,
        "workload.rate_rps": 1.6,
    }
    day = {system: simulated(system, "chatbot", settings) for system in SYSTEMS}
    said = [f"{SYSTEMS[s]}: mean TTFT {run.requests['ttft_s'].mean():.2f} s" for s, run in day.items()]
    yield "figure_14", figure_14(day), said


@command(into("outputs/fastlibra"))
def main(folder: Path) -> None:
    """Draw the figures and print their numbers."""
    for name, figure, said in figures():
        save(figure, folder / f"{name}.png")
        for line in said:
            print(f"  {line}")
