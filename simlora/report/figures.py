"""Figures for notebooks: each draws into one matplotlib Axes and returns it.

They take the tables of a run's folder, so they also draw what was read back from disk. matplotlib
is imported when a figure is drawn, not before.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from simlora.metrics.slo import SloTargets, attainment_curve, is_finished
from simlora.metrics.stored import Requests
from simlora.metrics.summary import TIMES
from simlora.report.colours import AMBER, BLUE, GRID, INK, TEAL
from simlora.report.curves import ALL, by_adapter, cdf, timelines
from simlora.report.format import KV_NAMES, METRIC_NAMES, clock_unit, limit, percent, time_unit
from simlora.report.modes import OTHER, THRESHOLDS, colours, credits, merged_spans, thresholds

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Numbers = NDArray[np.float64]
_COLOURS = {"ttft_s": BLUE, "tpot_s": TEAL, "latency_s": AMBER}


def plot_slo_attainment(
    requests: Requests,
    metric: str = "ttft_s",
    targets: SloTargets | None = None,
    ax: Axes | None = None,
    label: str | None = None,
) -> Axes:
    """Draw the share of submitted requests that would meet each target of `metric`.

    The target that `targets` sets for it is marked, its other targets stay as they are. Call it
    again with the same `ax` and another `label` to compare systems.
    """
    ax = _axes(ax)
    limits_s, shares = attainment_curve(requests, metric, targets)
    own = targets.set.get(metric) if targets else None
    if own is not None:
        share = float(shares[np.searchsorted(limits_s, own)])
        reached = f"{percent(share)} at {limit(own)}"
        label = f"{label}: {reached}" if label else reached
        ax.axvline(own, color=INK, linestyle="--", linewidth=1)
    ax.step(limits_s, shares, where="post", label=label)
    ax.set(xlabel=f"{METRIC_NAMES[metric]} target (s)", ylabel="SLO attainment", xlim=(0, None))
    return _shares(ax, legend=label is not None)


def plot_latency_cdf(
    requests: Requests,
    metrics: tuple[str, ...] = TIMES,
    ax: Axes | None = None,
) -> Axes:
    """Draw the share of finished requests at or below each time, on a logarithmic axis of seconds."""
    ax = _axes(ax)
    done = requests[is_finished(requests)]
    for metric in metrics:
        at_s, shares = cdf(done[metric].to_numpy(dtype=np.float64), upto=1.0)
        ax.step(at_s, shares, where="post", label=METRIC_NAMES[metric], color=_COLOURS.get(metric))
    ax.set(xscale="log", xlabel="seconds", ylabel="share of finished requests")
    return _shares(ax, legend=True)


def plot_timeline(timeline: pd.DataFrame, replica: int | None = None, ax: Axes | None = None) -> Axes:
    """Draw batch and queue of one replica over time, or of all together when `replica` is None.

    Raises ValueError for a replica that the timeline does not have.
    """
    ax = _axes(ax)
    times_s, level = _levels(timeline, replica)
    unit, factor = clock_unit(float(times_s.max(initial=0.0)))
    for name, colour in (("running", BLUE), ("waiting", TEAL)):
        values = level.get(name, np.empty(0))
        ax.fill_between(times_s * factor, values, step="post", color=colour, alpha=0.15)
        ax.step(times_s * factor, values, where="post", color=colour, label=name)
    ax.set(xlabel=f"simulated time ({unit})", ylabel="requests", xlim=(0, None), ylim=(0, None))
    ax.set_title(_whose(replica), loc="left", fontsize="medium")
    ax.legend(frameon=False)
    return ax


def plot_hbm(timeline: pd.DataFrame, replica: int | None = None, ax: Axes | None = None) -> Axes:
    """Draw what HBM holds over time, of one replica or of all together when `replica` is None.

    Below the capacity lie adapters, the KV of running requests, and history KV: what stays when its request is gone,
    hatched where its adapter is not there. FastLibra's Figure 14 is such a picture.
    Raises ValueError for a replica that the timeline does not have.
    """
    ax = _axes(ax)
    times_s, level = _levels(timeline, replica)
    unit, factor = clock_unit(float(times_s.max(initial=0.0)))
    nothing = np.zeros(len(times_s))
    kv, idle, invalid = (level.get(f"{name}kv_tokens", nothing) for name in ("", "idle_", "invalid_"))
    bands: list[tuple[str, Numbers, str, str | None]] = []
    bands += [("adapters", level.get("adapter_tokens", nothing), AMBER, None)]
    bands += [(KV_NAMES["running"] if idle.any() else "KV", kv - idle, BLUE, None)]
    bands += [(KV_NAMES["history"], idle - invalid, TEAL, None)] if idle.any() else []
    bands += [(KV_NAMES["invalid_kv_tokens"], invalid, TEAL, "////")] if invalid.any() else []
    base = nothing
    for name, tokens, colour, hatch in bands:
        area = ax.fill_between(times_s * factor, base, base + tokens, step="post", linewidth=0, label=name)
        area.set(facecolor=(colour, 0.3 if hatch else 0.75), edgecolor=colour, hatch=hatch)
        base = base + tokens
    capacity = level.get("capacity_tokens", nothing)
    ax.step(
        times_s * factor, capacity, where="post", color=INK, linestyle="--", linewidth=1, label="capacity"
    )
    ax.set(xlabel=f"simulated time ({unit})", ylabel="token slots of HBM", xlim=(0, None), ylim=(0, None))
    ax.set_title(_whose(replica), loc="left", fontsize="medium")
    ax.figure.legend(frameon=False, fontsize="small", loc="outside upper right", ncols=2)
    return ax


def _levels(timeline: pd.DataFrame, replica: int | None) -> tuple[Numbers, Mapping[str, Numbers]]:
    """Return times and levels of one replica, or of all together. Raises ValueError for one that is not there."""
    if replica is not None:
        timeline = timeline if timeline.empty else timeline[timeline["replica"] == replica]
        if timeline.empty:
            raise ValueError(f"the timeline has no replica {replica}")
    times_s, levels = timelines(timeline, busiest=1)
    return times_s, levels.get(ALL) or next(iter(levels.values()), {})


def _whose(replica: int | None) -> str:
    return "all replicas" if replica is None else f"replica {replica}"


def plot_modes(
    decisions: pd.DataFrame, end_s: float, replica: int = 0, ax: Axes | None = None, most_credits: int = 8
) -> Axes:
    """Draw which adapter a replica has merged until `end_s`, and alpha and beta where there are any.

    In a figure of our own, the credits of `most_credits` adapters follow in a panel below.
    """
    unit, factor = clock_unit(end_s)
    times_s = np.linspace(0.0, end_s, 2_001)
    spans = merged_spans(decisions, replica, end_s, stretches=1_000)
    lines = credits(decisions, replica, times_s, most_credits)
    names = colours([spans], (name for name, _ in lines))
    below = None
    if ax is None and lines:
        ax, below = _two_axes()
    ax = _axes(ax)
    for name, start_s, stop_s in zip(spans["adapter"], spans["start_s"], spans["end_s"], strict=True):
        ax.axvspan(start_s * factor, stop_s * factor, color=names.get(name, OTHER), alpha=0.45, linewidth=0)
    ax.set(xlabel=f"simulated time ({unit})", xlim=(0, end_s * factor or 1), ylim=(0, 1), yticks=[])
    ax.spines["left"].set_visible(False)
    ax.set_title(f"replica {replica}: merged adapter", loc="left", fontsize="medium")
    limits = thresholds(decisions, replica, times_s)
    if limits:
        _thresholds(ax, times_s * factor, limits)
    if below is not None:
        ax.set_xlabel("")
        for name, values in lines:
            below.step(times_s * factor, values, where="post", color=names.get(name, OTHER))
        below.set(xlabel=f"simulated time ({unit})", ylabel="credit, beyond the start")
        below.axhline(0.0, color=INK, linewidth=0.6)
    _adapter_legend(ax, names)
    return ax


def _thresholds(ax: Axes, times: Numbers, limits: Mapping[str, Numbers]) -> None:
    """Draw alpha and beta as steps on an axis of their own."""
    beside = ax.twinx()
    for name, style in zip(THRESHOLDS, ("-", "--"), strict=True):
        beside.step(times, limits[name], where="post", color=INK, linestyle=style, label=name)
    beside.spines[["top", "left"]].set_visible(False)
    beside.set(ylabel="threshold", ylim=(0, None))
    beside.legend(frameon=False, loc="lower right", bbox_to_anchor=(1, 1), ncols=2)


def _adapter_legend(ax: Axes, names: Mapping[str, str]) -> None:
    from matplotlib.patches import Patch

    patches = [Patch(color=colour, alpha=0.6, label=name or "base model") for name, colour in names.items()]
    if patches:
        legend = ax.figure.legend(handles=patches, frameon=False, loc="outside right upper", fontsize="small")
        for text in legend.get_texts():
            text.set_parse_math(False)


def _two_axes() -> tuple[Axes, Axes]:
    """Return two panels, the second below the first, in one figure with one axis of time."""
    from matplotlib import pyplot as plt

    _, (above, below) = plt.subplots(
        2, 1, sharex=True, figsize=(8, 5), height_ratios=(3, 2), layout="constrained"
    )
    return _axes(above), _axes(below)


def plot_adapters(requests: Requests, most: int = 30, ax: Axes | None = None) -> Axes:
    """Draw mean TTFT and, within it, mean cold start of the most requested adapters."""
    ax = _axes(ax)
    table = by_adapter(requests).head(most)
    unit, factor = time_unit(float(np.nan_to_num(table["ttft_s"].to_numpy()).max(initial=0.0)))
    names = [name or "base model" for name in table["adapter"]]
    at = np.arange(len(table))
    ax.bar(at, table["ttft_s"] * factor, color=BLUE, label="TTFT")
    ax.bar(at, table["cold_start_s"] * factor, color=AMBER, label="of which cold start")
    # Names come from a trace: parse_math would read a "$" in them as a formula.
    ax.set_xticks(at, names, rotation=90, fontsize="small", parse_math=False)
    ax.set(xlabel="adapter, by popularity", ylabel=f"mean over requests ({unit})")
    ax.legend(frameon=False)
    return ax


def _axes(ax: Axes | None) -> Axes:
    """Return `ax`, or new axes without the frame that carries no data."""
    if ax is None:
        from matplotlib import pyplot as plt

        _, ax = plt.subplots(figsize=(7, 3.6), layout="constrained")
    ax.spines[["top", "right"]].set_visible(False)
    return ax


def _shares(ax: Axes, legend: bool) -> Axes:
    """Return axes whose y is a share from 0 to 100 %."""
    from matplotlib.ticker import PercentFormatter

    ax.set_ylim(0, 1.02)
    ax.yaxis.set_major_formatter(PercentFormatter(1.0))
    ax.grid(axis="y", color=GRID)
    if legend:
        ax.legend(frameon=False)
    return ax
