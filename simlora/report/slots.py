"""The section of report.html on adapter slots: how many are in use, and which requests waited for one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from simlora.metrics.slo import column
from simlora.metrics.stored import Requests
from simlora.report import time_charts
from simlora.report.format import count, percent, seconds
from simlora.report.markup import EMPTY, Html, join, rows, tag
from simlora.report.parts import chart, section
from simlora.report.rates import STRETCHES, integral
from simlora.report.results import RunResults
from simlora.report.vega import Spec

TOP_ADAPTERS = 10


def spells(requests: Requests) -> pd.DataFrame:
    """Return when adapters were in use on each replica: a row for each stretch without a gap.

    Columns: replica, adapter (its number), begin_s, end_s. An adapter is in use from the admission of a request to its
    end.
    """
    begin_s = column(requests, "arrival_s") + column(requests, "queue_s")
    frame = pd.DataFrame(
        {
            "replica": requests["replica"].to_numpy(),
            "adapter": _numbered(requests),
            "begin_s": begin_s,
            "end_s": column(requests, "arrival_s") + column(requests, "latency_s"),
        }
    )
    frame = frame[(frame["adapter"] >= 0) & frame["end_s"].notna()]
    frame = frame.sort_values(["replica", "adapter", "begin_s"], kind="stable", ignore_index=True)
    own = frame.groupby(["replica", "adapter"], sort=False)
    until_s = own["end_s"].cummax()
    before_s = until_s.groupby([frame["replica"], frame["adapter"]], sort=False).shift(fill_value=-np.inf)
    spell = (frame["begin_s"] > before_s).cumsum()
    return frame.groupby(spell).agg(
        replica=("replica", "first"),
        adapter=("adapter", "first"),
        begin_s=("begin_s", "first"),
        end_s=("end_s", "max"),
    )


def waited(requests: Requests, found: pd.DataFrame, slots: Mapping[int, int]) -> NDArray[np.bool_]:
    """Return which requests [requests] came when other adapters were in use in all `slots` of their replica."""
    arrival_s, queue_s = column(requests, "arrival_s"), column(requests, "queue_s")
    adapter, replica = _numbered(requests), column(requests, "replica").astype(np.int64)
    late = np.zeros(len(arrival_s), dtype=np.bool_)
    asked = np.flatnonzero((replica >= 0) & (adapter >= 0) & (queue_s > 0))
    if not len(asked) or found.empty:
        return late
    most = np.array([slots[id] for id in range(len(slots))])[replica[asked]]
    of_replica = found["replica"].to_numpy(dtype=np.int64)
    in_use = _level(found, of_replica, replica[asked], arrival_s[asked])
    adapters = int(adapter.max()) + 1
    of_both = of_replica * adapters + found["adapter"].to_numpy(dtype=np.int64)
    own = _level(found, of_both, replica[asked] * adapters + adapter[asked], arrival_s[asked])
    late[asked] = (in_use >= most) & (own == 0)
    return late


def _level(
    found: pd.DataFrame, group: NDArray[np.int64], asked: NDArray[np.int64], at_s: NDArray[np.float64]
) -> NDArray[np.int64]:
    """Return how many spells of the group that is `asked` hold each moment [moments]; `group` is that of each spell."""
    span_s = (
        float(max(found["end_s"].max(), at_s.max())) + 1.0
    )  # so that groups lie behind each other on one axis
    begun, ended = (
        np.searchsorted(np.sort(group * span_s + found[name].to_numpy()), asked * span_s + at_s, "right")
        for name in ("begin_s", "end_s")
    )
    return np.asarray(begun - ended, dtype=np.int64)


def _numbered(requests: Requests) -> NDArray[np.int64]:
    """Return the adapter of each request [requests] as a number, -1 for the base model."""
    return np.asarray(pd.factorize(requests["adapter"])[0], dtype=np.int64)


def slots_of(summary: Mapping[str, Any]) -> dict[int, int]:
    """Return the adapter slots of each replica; {} where adapters do not lie in slots."""
    run = summary.get("run") or {}
    others = run.get("others") or []
    own = int(run.get("replicas") or 0) - sum(int(kind["replicas"]) for kind in others)
    each = [(own, run.get("max_loras")), *((int(kind["replicas"]), kind.get("max_loras")) for kind in others)]
    counts = [int(slots or 0) for replicas, slots in each for _ in range(replicas)]
    return dict(enumerate(counts)) if all(counts) else {}


def slots(results: RunResults, specs: dict[str, Spec]) -> Html:
    """Return slots in use over time, and which adapters' requests waited for one; nothing without slots."""
    found_slots = slots_of(results.summary)
    if not found_slots or results.rows.empty or "handover" in results.summary:
        # Where prefill and decode are apart, rows do not say since when a request is where it ends.
        return EMPTY
    found = spells(results.rows)
    end_s = float(found["end_s"].max()) if len(found) else 0.0
    if not end_s > 0:
        return EMPTY
    edges = np.linspace(0.0, end_s, STRETCHES + 1)
    ones = np.ones(len(found))
    in_use = integral(found["begin_s"].to_numpy(), found["end_s"].to_numpy(), ones, edges) / edges[1]
    total = sum(found_slots.values())
    frame = pd.DataFrame({"time_s": (edges[1:] + edges[:-1]) / 2, "in_use": in_use})
    specs["slots"] = time_charts.lines(frame, {"in_use": ("in use", "blue")}, end_s, most=float(total))
    late = waited(results.rows, found, found_slots)
    share = f"{percent(float(in_use.mean()) / total)} of {count(total)} slots are in use on average."
    return section(
        "Adapter slots",
        f"{share} {count(int(late.sum()))} requests ({percent(float(late.mean()))}) came while other adapters were in "
        "use in all slots of their replica, and had to wait for one.",
        chart("slots", "Adapter slots in use over time"),
        _waiting(results, late),
    )


def _waiting(results: RunResults, late: NDArray[np.bool_]) -> Html:
    """Return the adapters whose requests waited most often for a slot."""
    if not late.any():
        return EMPTY
    frame = pd.DataFrame(
        {
            "adapter": results.rows["adapter"].astype(object).to_numpy(),
            "late": late,
            "queue_s": column(results.rows, "queue_s"),
        }
    )
    groups = frame[frame["late"]].groupby("adapter")["queue_s"]
    columns = {"requests": groups.size(), "queue_s": groups.mean(), "all": frame.groupby("adapter").size()}
    waiting = pd.DataFrame(columns).dropna().rename_axis("adapter").reset_index()
    waiting = waiting.sort_values(["requests", "adapter"], ascending=[False, True]).head(TOP_ADAPTERS)
    shares = waiting["requests"] / waiting["all"]
    body = zip(
        waiting["adapter"],
        waiting["requests"].map(count),
        shares.map(percent),
        waiting["queue_s"].map(seconds),
        strict=True,
    )
    return join(
        [
            tag("h3", "Adapters whose requests waited for a slot"),
            rows(["adapter", "requests that waited", "of its requests", "queueing delay"], body),
        ]
    )
