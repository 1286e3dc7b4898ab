"""Service level objectives: which requests met them, attainment and goodput.

A target is met when the value is strictly below it, as S-LoRA counts its first tokens "in under
6 s". Every submitted request counts: one that was aborted, rejected or left unfinished missed its targets.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from simlora.metrics.stored import Requests


@dataclass(frozen=True, slots=True)
class SloClass:
    """Tenants with targets of their own: the requests for these `adapters`, by name, and their targets."""

    name: str
    adapters: frozenset[str]
    targets: SloTargets

    def owns(self, requests: Requests) -> NDArray[np.bool_]:
        """Return which requests `[requests]` belong to the class."""
        return np.asarray(requests["adapter"].isin(self.adapters), dtype=np.bool_)


@dataclass(frozen=True, slots=True)
class SloTargets:
    """Upper limits in seconds, per request; None sets no target.

    `latency_per_output_token_s` is latency / output tokens. A request of one output token has no TPOT and
    therefore cannot miss it. Requests of `classes` have targets of their own.
    """

    ttft_s: float | None = None
    tpot_s: float | None = None
    latency_s: float | None = None
    latency_per_output_token_s: float | None = None
    classes: tuple[SloClass, ...] = ()

    def __post_init__(self) -> None:
        for name, limit in self.set.items():
            if not (isinstance(limit, int | float) and math.isfinite(limit) and limit > 0):
                raise ValueError(f"SLO target {name} is {limit!r} s; it must be a number above 0")

    @property
    def set(self) -> dict[str, float]:
        """The targets that were set, by column."""
        pairs = ((name, getattr(self, name)) for name in TARGETS)
        return {name: limit for name, limit in pairs if limit is not None}


ATTAINMENT = "slo.attainment"
"""The key in summary.json of the share of requests within all their targets."""
PER_OUTPUT_TOKEN = {"latency_per_output_token_s": "latency_s", "queue_per_output_token_s": "queue_s"}
"""Metrics of a request that are columns over its output tokens."""
TARGETS = tuple(field.name for field in fields(SloTargets) if field.name != "classes")
"""The columns that can have a target."""


def column(requests: Requests, metric: str) -> NDArray[np.float64]:
    """Return one metric `[requests]` in seconds, NaN where it is undefined.

    `cold_start_share` is a share: (cold_start_s + kv_cold_start_s + blocked_s) / latency_s.
    Source: CaraServe (arXiv 2401.11240), Figure 3.
    """
    if metric == "cold_start_share":
        waited = sum(column(requests, name) for name in ("cold_start_s", "kv_cold_start_s", "blocked_s"))
        with np.errstate(invalid="ignore"):
            return np.asarray(waited / column(requests, "latency_s"), dtype=np.float64)
    if metric in PER_OUTPUT_TOKEN:
        tokens = np.maximum(requests["output_tokens"].to_numpy(dtype=np.float64), 1.0)
        return np.asarray(column(requests, PER_OUTPUT_TOKEN[metric]) / tokens, dtype=np.float64)
    return np.asarray(requests[metric].to_numpy(dtype=np.float64, na_value=np.nan), dtype=np.float64)


def mean(values: NDArray[np.float64]) -> float | None:
    """Return the mean of the values that are not NaN; None if there is none."""
    values = known(values)
    return float(values.mean()) if len(values) else None


def known(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the values that are not NaN, without a copy where all are."""
    unknown = np.isnan(values)
    return values[~unknown] if unknown.any() else values


def is_finished(requests: Requests) -> NDArray[np.bool_]:
    """Return which requests `[requests]` finished."""
    return np.asarray(requests["status"] == "finished", dtype=np.bool_)


def met(requests: Requests, targets: SloTargets) -> NDArray[np.bool_]:
    """Return which requests `[requests]` finished within every target set."""
    within = _within(requests, targets)
    for tenants in targets.classes:
        within = np.where(tenants.owns(requests), _within(requests, tenants.targets), within)
    return within


def _within(requests: Requests, targets: SloTargets) -> NDArray[np.bool_]:
    """Return which requests `[requests]` finished within these targets, regardless of their class."""
    within = is_finished(requests)
    for metric, limit in targets.set.items():
        values = column(requests, metric)
        undefined = np.isnan(values) if metric == "tpot_s" else np.False_
        within = within & ((values < limit) | undefined)
    return within


def attainment(requests: Requests, targets: SloTargets) -> float:
    """Return the share of submitted requests that met every target set; NaN when none was submitted.

    With no target set this is the share that finished.
    """
    return float(met(requests, targets).mean()) if len(requests) else math.nan


def goodput_rps(requests: Requests, targets: SloTargets, makespan_s: float) -> float:
    """Return the requests per second that met every target set; NaN for a makespan of 0."""
    return float(met(requests, targets).sum()) / makespan_s if makespan_s > 0 else math.nan


def user_satisfaction(requests: Requests, ttft_slo_s: float) -> float:
    """Return the mean over submitted requests of 1 - (TTFT / SLO)**2, 0 past the SLO or if not finished.

    Source: S-LoRA (MLSys'24) §7, where the SLO is 6 s. NaN when none was submitted.
    """
    if not len(requests):
        return math.nan
    within = met(requests, SloTargets(ttft_s=ttft_slo_s))
    share = column(requests, "ttft_s") / ttft_slo_s
    return float(np.where(within, 1.0 - share**2, 0.0).mean())


def attainment_curve(
    requests: Requests,
    metric: str = "ttft_s",
    targets: SloTargets | None = None,
    points: int = 400,
    at_s: NDArray[np.float64] | None = None,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return limits `[points]` in seconds and the attainment with each of them as the target of `metric`.

    The other targets in `targets` are unchanged. Each share is exact; only the limits are thinned, to `points`
    quantiles of the metric, 0 and the target that was set. `at_s` gives the limits instead.
    """
    chosen: dict[str, Any] = dict(targets.set) if targets else {}
    own = chosen.pop(metric, None)
    values = np.sort(column(requests, metric)[met(requests, SloTargets(**chosen))])
    immune = np.isnan(values).sum() if metric == "tpot_s" else 0
    values = values[~np.isnan(values)]
    if at_s is None:
        at_s = _thinned(values, points, [0.0] if own is None else [0.0, own])
    below = np.searchsorted(values, at_s, side="left") + immune
    return at_s, below / max(len(requests), 1)


def _thinned(values: NDArray[np.float64], points: int, more: list[float]) -> NDArray[np.float64]:
    """Return at most `points` limits just above the quantiles of sorted `values`, with `more` among them."""
    kept = values
    room = points - len(more)
    if len(values) > room:
        kept = values[np.linspace(0, len(values) - 1, room).round().astype(np.int64)]
    return np.unique(np.concatenate([np.nextafter(kept, np.inf), more]))
