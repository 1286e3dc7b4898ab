"""summary.json: the numbers of one run."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from simlora.metrics.histogram import TokenGaps
from simlora.metrics.saturation import LOADS, UNKNOWN, load
from simlora.metrics.slo import (
    SloClass,
    SloTargets,
    attainment,
    column,
    goodput_rps,
    is_finished,
    known,
    mean,
    user_satisfaction,
)
from simlora.metrics.window import Window

if TYPE_CHECKING:
    from simlora.metrics.stored import Requests

STATUSES = ("finished", "aborted", "rejected", "unfinished")
PERCENTILES = (50, 90, 95, 99)
TIMES = ("ttft_s", "tpot_s", "latency_s")
"""The times that a user notices."""
REQUEST_METRICS = (
    *TIMES,
    "latency_per_output_token_s",
    "queue_s",
    "queue_per_output_token_s",
    "cold_start_s",
    "kv_cold_start_s",
    "blocked_s",
    "cold_start_share",
)


def summarise(
    requests: Requests,
    token_gaps: TokenGaps,
    targets: SloTargets,
    *,
    makespan_s: float,
    adapters: Mapping[str, Any],
    kv: Mapping[str, Any],
    replicas: Sequence[Mapping[str, Any]],
    calibration: Mapping[str, Any],
    simulation: Mapping[str, Any],
    versions: Mapping[str, Any],
    seed: int,
    workload: Mapping[str, Any],
    migration: Mapping[str, Any] | None = None,
    placement: Mapping[str, Any] | None = None,
    failures: Mapping[str, Any] | None = None,
    slowness: Mapping[str, Any] | None = None,
    scaling: Mapping[str, Any] | None = None,
    clients: Mapping[str, Any] | None = None,
    handover: Mapping[str, Any] | None = None,
    speculation: Mapping[str, Any] | None = None,
    stages: Sequence[Requests] = (),
    cost: Mapping[str, Any] | None = None,
    run: Mapping[str, Any] | None = None,
    command: str = "",
    complete: bool = True,
    window: Window | None = None,
) -> dict[str, Any]:
    """Return the summary of a run, ready for `json.dumps(..., allow_nan=False)`.

    Times are in seconds and describe finished requests; `tbt_s` describes all tokens, and `cold_start_share` is a share
    of the latency. `latency_over_output_tokens_s` is the sum of latencies over the sum of output tokens;
    `latency_per_output_token_s` has each request's ratio. Sections that do not apply are None: `migration` without
    a migration policy, `placement` if it does not plan anew, `failures` and `slowness` if none is configured, `scaling`
    without an autoscaler; `speculation` is there if a draft proposes tokens, `clients` if they react to what becomes of
    their requests, and `handover` if prefill and decode are apart: then `stages` are the requests as either pool sees
    them, and `load` is that of the pool which is nearer to saturation. `run` describes what was simulated (`system`,
    `model`, `gpu`, `tp`, `replicas`), `command` repeats it, and `complete` says whether it reached its end. With a
    `window`, counts, times, rates and the SLO cover the requests that arrive in it, per second of it; `load`, `tbt_s`
    and figures by replica cover the whole run.
    """
    all_requests, span_s = requests, makespan_s
    if window is not None:
        requests, span_s = window.of(requests), window.span_s
    done = requests[is_finished(requests)]
    tokens = float(done["output_tokens"].sum())
    summary: dict[str, Any] = {
        "complete": complete,
        "command": command,
        "run": run or {},
        "workload": workload,
        "requests": _statuses(requests),
        "makespan_s": makespan_s,
        "window": None if window is None else window.describe(),
        "throughput_rps": len(done) / span_s if span_s > 0 else None,
        "throughput_tps": tokens / span_s if span_s > 0 else None,
        **{metric: distribution(column(done, metric)) for metric in REQUEST_METRICS},
        "latency_over_output_tokens_s": float(column(done, "latency_s").sum()) / tokens if tokens else None,
        "tbt_s": _gap_distribution(token_gaps),
        "slo": _slo(requests, targets, span_s),
        "load": _load(all_requests, stages) | ({} if complete else {"label": UNKNOWN}),
        "adapters": {**adapters, "running_rank": _running_rank(done)},
        "kv": kv,
        "migration": migration,
        "placement": placement,
        "failures": failures,
        "slowness": slowness,
        "scaling": scaling,
        **({} if clients is None else {"clients": clients}),
        **({} if handover is None else {"handover": handover}),
        **({} if speculation is None else {"speculation": speculation}),
        "cost": cost,
        "replicas": replicas,
        "calibration": calibration,
        "simulation": simulation,
        "versions": versions,
        "seed": seed,
    }
    safe: dict[str, Any] = json_safe(summary)
    return safe


def distribution(values: NDArray[np.float64]) -> dict[str, float | None]:
    """Return mean, p50, p90, p95 and p99 of the values that are not NaN (numpy's linear percentiles)."""
    values = known(values)
    found = np.percentile(values, PERCENTILES) if len(values) else [None] * len(PERCENTILES)
    return {"mean": mean(values)} | _by_percentile(found)


def _running_rank(done: Requests) -> float | None:
    """Return the mean rank of running requests over time, 0 for those of the base model; None if none ran.

    Each finished request counts from its first token to its last.
    """
    ran_s = column(done, "latency_s") - column(done, "ttft_s")
    all_s = float(ran_s.sum())
    if not all_s > 0:
        return None
    ran_s *= done["rank"].to_numpy()
    return float(ran_s.sum()) / all_s


def _load(requests: Requests, stages: Sequence[Requests]) -> dict[str, Any]:
    """Return how near to saturation a run was: of several stages, the one that was nearest."""
    if not stages:
        return load(requests)
    found = [load(stage) for stage in stages]
    worst = max(found, key=lambda one: LOADS.index(one["label"]))
    return worst | {"given_up_share": found[0]["given_up_share"]}


def _gap_distribution(gaps: TokenGaps) -> dict[str, float | None]:
    return {"mean": gaps.mean()} | _by_percentile([gaps.quantile(p / 100) for p in PERCENTILES])


def _by_percentile(found: Iterable[float | None]) -> dict[str, float | None]:
    return {f"p{p}": value for p, value in zip(PERCENTILES, found, strict=True)}


def _statuses(requests: Requests) -> dict[str, int]:
    counts = {status: int((requests["status"] == status).sum()) for status in STATUSES}
    return {"submitted": len(requests)} | counts


def _slo(requests: Requests, targets: SloTargets, makespan_s: float) -> dict[str, Any]:
    satisfaction = user_satisfaction(requests, targets.ttft_s) if targets.ttft_s else None
    return {
        "targets": targets.set,
        "attainment": attainment(requests, targets),
        "goodput_rps": goodput_rps(requests, targets, makespan_s),
        "satisfaction": satisfaction,
        "classes": {tenants.name: _class(requests, tenants) for tenants in targets.classes},
    }


def _class(requests: Requests, tenants: SloClass) -> dict[str, Any]:
    """Return the SLO figures of a class of tenants."""
    theirs = requests[tenants.owns(requests)]
    done = theirs[is_finished(theirs)]
    return {
        "targets": tenants.targets.set,
        "adapters": len(tenants.adapters),
        "requests": len(theirs),
        "attainment": attainment(theirs, tenants.targets),
        **{metric: distribution(column(done, metric)) for metric in TIMES},
    }


def json_safe(value: Any) -> Any:
    """Return `value` in JSON's types: plain numbers, lists and string keys; NaN and infinity become None."""
    if isinstance(value, Mapping):
        return {str(key): json_safe(item) for key, item in value.items()}
    if isinstance(value, list | tuple | np.ndarray):
        return [json_safe(item) for item in value]
    if isinstance(value, np.generic):
        return json_safe(value.item())
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if value is None or isinstance(value, str | int) else str(value)
