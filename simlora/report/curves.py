"""The numbers behind the figures: thinned curves, resampled timelines, one row an adapter."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from simlora.metrics.slo import column, is_finished
from simlora.metrics.stored import Requests
from simlora.metrics.timeline import CAPACITIES, LEVELS
from simlora.report.groups import Groups

ALL = "all"
"""Key of the sum over all replicas."""


def cdf(
    values: NDArray[np.float64], points: int = 400, upto: float = 0.995
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return values and the share `[points]` at or below each, up to the quantile `upto`; empty if none exist."""
    values = np.sort(values[~np.isnan(values)])
    last = int(np.ceil(len(values) * upto))
    at = values[np.unique(np.linspace(0, max(last - 1, 0), min(points, last)).round().astype(np.int64))]
    return at, np.searchsorted(values, at, side="right") / max(len(values), 1)


def timelines(
    timeline: pd.DataFrame, busiest: int = 8, points: int = 300
) -> tuple[NDArray[np.float64], dict[str, dict[str, NDArray[np.float64]]]]:
    """Return times `[points]` and, per replica, the mean level of each of LEVELS from one time to the next.

    Nothing comes back for a timeline without duration.

    The keys are ALL (the sum over all replicas) when there are several, then the `busiest` replicas by mean
    batch and queue, in order of id. Means over time, unlike samples, add up over replicas and
    keep what happened between two points.
    """
    if timeline.empty or timeline["time_s"].max() <= 0:
        return np.empty(0), {}
    timeline = timeline.sort_values(["replica", "time_s"], kind="stable")
    grid = np.linspace(0.0, float(timeline["time_s"].max()), points + 1)
    ids, starts = np.unique(timeline["replica"].to_numpy(), return_index=True)
    bounds = [*starts.tolist(), len(timeline)]
    means = {
        str(replica): _means(timeline.iloc[bounds[i] : bounds[i + 1]], grid) for i, replica in enumerate(ids)
    }
    total = {name: np.sum([mean[name] for mean in means.values()], axis=0) for name in LEVELS}
    shown = means if len(means) <= busiest else {key: means[key] for key in _busiest(means, busiest)}
    return grid[:-1], ({ALL: total} if len(means) > 1 else {}) | shown


def _busiest(means: Mapping[str, Mapping[str, NDArray[np.float64]]], most: int) -> list[str]:
    work = {key: float((mean["running"] + mean["waiting"]).sum()) for key, mean in means.items()}
    return sorted(sorted(work, key=lambda key: (-work[key], int(key)))[:most], key=int)


def _means(rows: pd.DataFrame, grid: NDArray[np.float64]) -> dict[str, NDArray[np.float64]]:
    """Return the means over `[grid - 1]` intervals of levels that hold from each row to the next.

    Before its first row a level is 0, except the capacity, which does not change by starting late.
    """
    time_s = rows["time_s"].to_numpy(dtype=np.float64)
    if time_s[0] > 0:
        time_s = np.concatenate([[0.0], time_s])
    knots = np.append(time_s, max(grid[-1], time_s[-1]))
    means = {}
    for name in LEVELS:
        level = rows[name].to_numpy(dtype=np.float64)
        if len(level) < len(time_s):
            level = np.concatenate([[level[0] if name in CAPACITIES else 0.0], level])
        area = np.concatenate([[0.0], np.cumsum(level * np.diff(knots))])
        means[name] = np.diff(np.interp(grid, knots, area)) / np.diff(grid)
    return means


MEANS = ("ttft_s", "cold_start_s", "kv_cold_start_s", "blocked_s")
"""Columns of which by_adapter returns means."""
TAILS = ("ttft_s", "latency_s")
"""Columns of which it returns 95th percentiles."""


def by_adapter(requests: Requests) -> pd.DataFrame:
    """Return one row an adapter, most requested first, ties by name.

    Columns: adapter ("" is the base model), rank, requests, finished, and of finished requests means, ttft_s,
    cold_start_s, kv_cold_start_s and blocked_s, and 95th percentiles, ttft_p95_s and latency_p95_s.
    """
    done = is_finished(requests)
    codes, names = _adapters(requests["adapter"])
    groups = Groups(codes, len(names))
    ranks = np.full(len(names), np.nan)
    np.fmax.at(ranks, codes, column(requests, "rank"))

    def finished(name: str) -> NDArray[np.float64]:
        values = column(requests, name)
        return values if done.all() else np.where(done, values, np.nan)

    table = pd.DataFrame(
        {
            "adapter": names,
            "rank": ranks,
            "requests": groups.sizes,
            "finished": groups.total(done).astype(np.int64),
            **{name: groups.mean(finished(name)) for name in MEANS},
            **{f"{name[:-2]}_p95_s": groups.quantile(finished(name), 0.95) for name in TAILS},
        }
    )
    return table.sort_values(["requests", "adapter"], ascending=[False, True], ignore_index=True)


def _adapters(adapters: pd.Series[Any]) -> tuple[NDArray[np.int64], NDArray[np.object_]]:
    """Return the adapters of requests [requests] as places among their sorted names, and these; "" is none."""
    codes, found = pd.factorize(adapters)
    none = [""] if (codes < 0).any() else []
    places, names = pd.factorize(np.array([*found, *none], dtype=object), sort=True)
    return places[codes], names


def thinned_ranks(length: int, points: int = 300) -> NDArray[np.int64]:
    """Return positions 0..length-1, all of them or `points` that lie closer at the front."""
    if length <= points:
        return np.arange(length)
    return np.unique(np.geomspace(1, length, points).round().astype(np.int64)) - 1


def losses(requests: Requests) -> pd.DataFrame:
    """Return `status, reason, requests` of what did not finish, most frequent first."""
    lost = requests[~is_finished(requests)]
    frame = pd.DataFrame(
        {name: lost[name].astype(object).fillna("").astype(str) for name in ("status", "reason")}
    )
    counts = frame.value_counts(sort=False).rename("requests").reset_index()
    order = ["requests", "status", "reason"]
    return counts.sort_values(order, ascending=[False, True, True], ignore_index=True)
