"""Facts: what a trace is like, in the numbers that decide how hard it is to serve."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from simlora.core import libm
from simlora.core.arrays import Counts, Floats, Ints
from simlora.core.trace import BASE_MODEL, Trace
from simlora.workload.adapters import base_model
from simlora.workload.reuse import Reuse, ideal_reuse

WINDOWS_S = (1.0, 10.0, 60.0, 600.0, 3600.0)
"""Over which bursts are looked for."""
WINDOWS_LEAST = 10
"""Of them in a trace, or their variance says nothing."""
MINUTE_S = 60.0
QUANTILES = (0.0, 0.25, 0.5, 0.75, 0.9, 0.99, 1.0)


@dataclass(frozen=True)
class Rates:
    """How requests come. What a trace is too short for is None.

    `dispersion` is the variance of the counts in windows of so many seconds, over their mean: 1 for Poisson, more
    for bursts. `gap_cv` is the coefficient of variation of the gaps between arrivals, 1 for Poisson too.
    """

    span_s: float
    mean_rps: float | None
    peak_rps: float | None
    gap_cv: float | None
    dispersion: dict[float, float]

    @property
    def peak_to_mean(self) -> float | None:
        """Return how many times the mean comes in the busiest minute."""
        if self.peak_rps is None or not self.mean_rps:
            return None
        return self.peak_rps / self.mean_rps


@dataclass(frozen=True)
class Shares:
    """How requests are spread over the adapters that a trace has, whether they are used or not.

    `gini` is 0 if all have as many requests as the next, and close to 1 if one has all. `effective` is the number of
    adapters that, alike, would be as surprising: the exponential of the entropy.
    """

    adapters: int
    used: int
    base_model: int
    top: float
    top_tenth: float
    gini: float
    effective: float


@dataclass(frozen=True)
class Sessions:
    """How many sessions there are among `requests` that have one."""

    sessions: int
    requests: int
    longest: int


@dataclass(frozen=True)
class Facts:
    """What a trace is like. `prompts` and `outputs` are tokens at QUANTILES and, last, their mean."""

    requests: int
    rates: Rates
    prompts: tuple[float, ...]
    outputs: tuple[float, ...]
    shares: Shares
    sessions: Sessions | None
    reuse: Reuse | None
    reuse_of_one: Reuse | None
    """With one adapter for all: what adapters of their own take away."""


def longest_tokens(trace: Trace) -> int:
    """Return the most tokens that a request may have: of its prompt and of the longest answer that it allows."""
    if not len(trace):
        return 0
    return int((trace.prompt_tokens.astype(np.int64) + trace.max_output_tokens).max())


def facts(trace: Trace) -> Facts:
    """Return the facts of a trace with at least one request."""
    one = replace(trace, adapter=base_model(len(trace)), adapters=(), history_rps=None)
    return Facts(
        requests=len(trace),
        rates=rates(trace.arrival_s),
        prompts=_lengths(trace.prompt_tokens),
        outputs=_lengths(trace.output_tokens),
        shares=shares(trace),
        sessions=_sessions(trace),
        reuse=ideal_reuse(trace) if trace.has_prefixes else None,
        reuse_of_one=ideal_reuse(one) if trace.has_prefixes else None,
    )


def rates(arrival_s: Floats) -> Rates:
    """Return how requests come, at sorted times [requests]."""
    since_s = arrival_s - arrival_s[0]
    span_s = float(since_s[-1])
    if not span_s:
        return Rates(0.0, None, None, None, {})
    gaps_s = np.diff(since_s)
    return Rates(
        span_s=span_s,
        mean_rps=len(gaps_s) / span_s,
        peak_rps=float(counts(arrival_s, MINUTE_S).max()) / MINUTE_S if span_s >= MINUTE_S else None,
        gap_cv=float(gaps_s.std() / gaps_s.mean()) if len(gaps_s) > 1 else None,
        dispersion={
            width: _dispersion(arrival_s, width) for width in WINDOWS_S if span_s >= WINDOWS_LEAST * width
        },
    )


def counts(arrival_s: Floats, width_s: float) -> Ints:
    """Return how many requests come in each window of so many seconds that is whole [windows]; at least one window."""
    since_s = arrival_s - arrival_s[0]
    found = np.bincount((since_s / width_s).astype(np.int64))
    return found[: max(int(since_s[-1] / width_s), 1)]


def _dispersion(arrival_s: Floats, width_s: float) -> float:
    found = counts(arrival_s, width_s)
    return float(found.var(ddof=1) / found.mean()) if found.any() else 0.0


def shares(trace: Trace) -> Shares:
    """Return how requests are spread over adapters; those for the base model are counted apart."""
    own = trace.adapter[trace.adapter != BASE_MODEL]
    base_model = len(trace) - len(own)
    if not len(own):
        return Shares(len(trace.adapters), 0, base_model, 0.0, 0.0, 0.0, 0.0)
    found = np.sort(np.bincount(own, minlength=len(trace.adapters)))[::-1]
    share = found / found.sum()
    some = share[share > 0]
    n = len(share)
    return Shares(
        adapters=n,
        used=len(some),
        base_model=base_model,
        top=float(share[0]),
        top_tenth=float(share[: -(-n // 10)].sum()),
        gini=float(((n + 1 - 2 * np.arange(1, n + 1)) * share).sum() / n),
        effective=math.exp(-float((some * libm.log(some)).sum())),
    )


def _lengths(tokens: Counts) -> tuple[float, ...]:
    return (*np.quantile(tokens, QUANTILES).tolist(), float(tokens.mean()))


def _sessions(trace: Trace) -> Sessions | None:
    named: Counter[Any] = Counter(session for session in trace.session or () if session is not None)
    if not named:
        return None
    return Sessions(len(named), named.total(), max(named.values()))
