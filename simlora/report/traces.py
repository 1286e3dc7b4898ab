"""The picture of a trace: when requests come, how long they are, for whom, and what comes again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from simlora.core import libm
from simlora.core.trace import BASE_MODEL, Trace
from simlora.report.colours import AMBER, BLUE, INK, TEAL
from simlora.report.curves import cdf, thinned_ranks
from simlora.report.format import clock_unit, percent

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BINS = 120
"""Of time: as many as can be told apart in a panel."""
BARS = 40
"""Of adapters; more are a line."""
Floats = NDArray[np.float64]


def draw_trace(
    trace: Trace, title: str, dispersion: Mapping[float, float], found: Mapping[str, float]
) -> Figure:
    """Return a picture of a trace with at least one request.

    `dispersion` is variance over mean of the counts in windows of so many seconds; `found` the shares of the prompts'
    blocks that are found again, by what they are found with. Either may be empty.
    """
    from matplotlib.figure import Figure

    picture = Figure(figsize=(12, 6.4), layout="constrained")
    panels = picture.subplots(2, 3).ravel()
    picture.suptitle(title.replace("$", r"\$"), fontsize=12, fontweight="bold", x=0.01, ha="left")
    _rate(panels[0], trace.arrival_s)
    _gaps(panels[1], trace.arrival_s)
    _dispersion(panels[2], dispersion)
    _lengths(panels[3], trace)
    _popularity(panels[4], trace)
    _reuse(panels[5], found)
    for panel in panels:
        panel.spines[["top", "right"]].set_visible(False)
    return picture


def _rate(ax: Axes, arrival_s: Floats) -> None:
    unit, factor = clock_unit(float(arrival_s[-1]))
    bins = min(BINS, max(len(arrival_s) // 2, 1))
    found, edges_s = np.histogram(
        arrival_s, bins=bins, range=(float(arrival_s[0]), float(arrival_s[-1]) or 1.0)
    )
    width_s = float(edges_s[1] - edges_s[0])
    ax.stairs(found / width_s, edges_s * factor, color=BLUE, fill=True, alpha=0.15)
    ax.stairs(found / width_s, edges_s * factor, color=BLUE, linewidth=1.2)
    ax.axhline(len(arrival_s) / (bins * width_s), color=INK, linestyle="--", linewidth=0.8)
    ax.set(title="Rate", xlabel=f"time ({unit})", ylabel="requests per second", ylim=(0, None))
    ax.margins(x=0)


def _gaps(ax: Axes, arrival_s: Floats) -> None:
    """Draw the share of gaps that are longer, against those of a Poisson process of the same rate."""
    gaps_s = np.sort(np.diff(arrival_s))
    ax.set(title="Gaps between arrivals", xlabel="seconds", ylabel="share that is longer")
    if not len(gaps_s) or not gaps_s[-1]:
        return _nothing(ax, "all come at once")
    longer = 1 - np.arange(1, len(gaps_s) + 1) / len(gaps_s)
    some = np.unique(
        np.concatenate([np.linspace(0, len(gaps_s) - 1, 400), len(gaps_s) - thinned_ranks(len(gaps_s)) - 1])
    )
    some = some.astype(np.int64)
    ax.plot([0.0, *gaps_s[some]], [1.0, *longer[some]], color=BLUE, linewidth=1.6, label="trace")
    mean_s = float(gaps_s.mean())
    least = 1 / (2 * len(gaps_s))
    at_s = np.linspace(0, -mean_s * libm.log(least), 200)
    ax.plot(at_s, libm.exp(-at_s / mean_s), color=INK, linestyle="--", linewidth=0.9, label="Poisson")
    ax.set_yscale("log")
    ax.set_ylim(least, 1.3)
    ax.set_xlim(0, None)
    ax.legend(frameon=False, fontsize=9)
    return None


def _dispersion(ax: Axes, dispersion: Mapping[float, float]) -> None:
    ax.set(title="Burstiness", xlabel="window (s)", ylabel="variance / mean of requests in it")
    if not dispersion:
        return _nothing(ax, "too short to tell")
    ax.plot(list(dispersion), list(dispersion.values()), color=AMBER, marker="o", markersize=5, linewidth=1.6)
    ax.axhline(1.0, color=INK, linestyle="--", linewidth=0.9, label="Poisson")
    ax.set_xscale("log")
    ax.set_yscale("log")
    ax.set_xticks(list(dispersion), [f"{width:g}" for width in dispersion])
    ax.minorticks_off()
    low, high = min(1.0, *dispersion.values()), max(1.0, *dispersion.values())
    ax.set_ylim(low / 2, high * 2)
    powers = [power for power in (0.01, 0.1, 1, 10, 100, 1e3, 1e4, 1e5) if low / 2 <= power <= high * 2]
    some = [0.2, 0.5, 1, 2, 5]  # where hardly anything but 1 lies between
    ax.set_yticks(powers if len(powers) > 1 else [each for each in some if low / 2 <= each <= high * 2])
    ax.yaxis.set_major_formatter("{x:g}")
    ax.legend(frameon=False, fontsize=9)
    return None


def _lengths(ax: Axes, trace: Trace) -> None:
    for tokens, colour, name in (
        (trace.prompt_tokens, BLUE, "prompts"),
        (trace.output_tokens, TEAL, "answers"),
    ):
        at, shares = cdf(tokens.astype(np.float64), upto=1.0)
        ax.step([at[0], *at], [0.0, *shares], where="post", color=colour, linewidth=1.6, label=name)
    ax.set_xscale("log")
    _plain_decades(ax)
    ax.set(title="Lengths", xlabel="tokens", ylabel="share at most so long", ylim=(0, 1.02))
    ax.legend(frameon=False, fontsize=9)


def _plain_decades(ax: Axes) -> None:
    """Write 1, 2 and 5 of each decade as people do, and nothing between them: of few decades all would overlap."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    low, high = ax.get_xlim()
    ax.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if high < 300 * low else (1,)))
    ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    ax.xaxis.set_minor_formatter(NullFormatter())


def _popularity(ax: Axes, trace: Trace) -> None:
    ax.set(title="Adapters", xlabel="adapter, by popularity", ylabel="requests")
    own = trace.adapter[trace.adapter != BASE_MODEL]
    if not len(own):
        return _nothing(ax, "the base model alone")
    found = np.sort(np.bincount(own))[::-1]
    found = found[found > 0]
    at = np.arange(1, len(found) + 1)
    if len(found) <= BARS:
        ax.bar(at, found, color=TEAL, width=0.8)
        ax.set_xticks(at[:: max(len(at) // 8, 1)])
    else:
        some = thinned_ranks(len(found))
        ax.plot(at[some], found[some], color=TEAL, linewidth=1.6)
        ax.set_xlim(1, len(found))
        if found[0] >= 30 * found[-1]:
            ax.set_xscale("log")
            ax.set_yscale("log")
            return None
    ax.set_ylim(0, None)
    return None


def _reuse(ax: Axes, found: Mapping[str, float]) -> None:
    ax.set(title="Reuse", xlabel="blocks of prompts that came before (%)")
    if not found:
        return _nothing(ax, "neither sessions nor hashes")
    at = np.arange(len(found))[::-1]
    ax.barh(at, [100 * share for share in found.values()], color=[TEAL, BLUE][: len(found)], height=0.5)
    for y, share in zip(at, found.values(), strict=True):
        ax.text(100 * share + 1.5, y, percent(share), va="center", color=INK)
    ax.set_yticks(at, list(found))
    ax.set_xlim(0, 115)
    ax.set_xticks([0, 25, 50, 75, 100])
    ax.set_ylim(-0.8, len(found) - 0.2)
    return None


def _nothing(ax: Axes, why: str) -> None:
    ax.text(0.5, 0.5, why, ha="center", va="center", transform=ax.transAxes, color="#5c6773")
    ax.set_xticks([])
    ax.set_yticks([])
