"""What happened when: requests and tokens a second, first tokens and the SLO, in equal stretches of time."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from simlora.metrics.slo import SloTargets, column, known, met
from simlora.metrics.stored import Requests

STRETCHES = 60
CHUNK = 1 << 20
"""Requests at a time whose tokens are spread: ten million at once took 1.5 GB."""


def by_time(requests: Requests, targets: SloTargets, stretches: int = STRETCHES) -> pd.DataFrame:
    """Return a row for each stretch of the time from 0 to the last token; none if nothing happened.

    Columns: `time_s`, its middle; requests a second by what they did: `arrivals_rps`, `first_tokens_rps`,
    `finished_rps`; `tokens_per_s`, output tokens, those of a request spread evenly from its first to its last; and of
    the requests that arrived in it `attainment`, `ttft_p50_s` and `ttft_p95_s`, NaN where there are none.
    """
    arrival_s, ttft_s = column(requests, "arrival_s"), column(requests, "ttft_s")
    first_s, last_s = arrival_s + ttft_s, arrival_s + column(requests, "latency_s")
    end_s = max(float(np.nanmax(times_s, initial=0.0)) for times_s in (arrival_s, first_s, last_s))
    if not end_s > 0:
        return pd.DataFrame()
    edges = np.linspace(0.0, end_s, stretches + 1)
    counted = {
        f"{name}_rps": np.histogram(times_s[~np.isnan(times_s)], edges)[0] / edges[1]
        for name, times_s in (("arrivals", arrival_s), ("first_tokens", first_s), ("finished", last_s))
    }
    tokens, output_tokens = np.zeros(stretches), column(requests, "output_tokens")
    for begin in range(0, len(arrival_s), CHUNK):
        part = slice(begin, begin + CHUNK)
        tokens += _spread(first_s[part], last_s[part], output_tokens[part], edges)
    del first_s, last_s, output_tokens
    of_arrivals = _of_arrivals(arrival_s, ttft_s, met(requests, targets), edges)
    times = {"time_s": (edges[1:] + edges[:-1]) / 2}
    return pd.DataFrame(times | counted | {"tokens_per_s": tokens / edges[1]} | of_arrivals)


def _of_arrivals(
    arrival_s: NDArray[np.float64],
    ttft_s: NDArray[np.float64],
    within: NDArray[np.bool_],
    edges: NDArray[np.float64],
) -> dict[str, NDArray[np.float64]]:
    """Return attainment and times to first tokens of the requests [requests] that arrived between edges [edges - 1]."""
    if np.any(arrival_s[1:] < arrival_s[:-1]):  # those of a run are sorted
        order = np.argsort(arrival_s, kind="stable")
        arrival_s, ttft_s, within = arrival_s[order], ttft_s[order], within[order]
    at = np.searchsorted(arrival_s, edges[1:-1])
    columns = {name: np.full(len(edges) - 1, np.nan) for name in ("attainment", "ttft_p50_s", "ttft_p95_s")}
    for place, (begin, end) in enumerate(pairwise([0, *at.tolist(), len(arrival_s)])):
        if begin < end:
            columns["attainment"][place] = within[begin:end].mean()
        waits_s = known(ttft_s[begin:end])
        if len(waits_s):
            columns["ttft_p50_s"][place], columns["ttft_p95_s"][place] = np.percentile(waits_s, (50, 95))
    return columns


def _spread(
    first_s: NDArray[np.float64],
    last_s: NDArray[np.float64],
    tokens: NDArray[np.float64],
    edges: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Return the tokens between edges [edges - 1], each request's spread evenly from its first to its last."""
    ended = ~np.isnan(first_s) & ~np.isnan(last_s)
    first_s, last_s, tokens = first_s[ended], last_s[ended], tokens[ended]
    lasting = last_s > first_s
    at_once = np.histogram(first_s[~lasting], edges, weights=tokens[~lasting])[0]
    rates = tokens[lasting] / (last_s - first_s)[lasting]
    return np.asarray(at_once + integral(first_s[lasting], last_s[lasting], rates, edges), dtype=np.float64)


def integral(
    begins_s: NDArray[np.float64],
    ends_s: NDArray[np.float64],
    heights: NDArray[np.float64],
    edges: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Return the integral between edges [edges - 1] of a sum of heights, each from its beginning to its end."""
    moments = np.concatenate([edges[:1], begins_s, ends_s])
    order = np.argsort(moments, kind="stable")
    level = np.cumsum(np.concatenate([[0.0], heights, -heights])[order])
    moments = moments[order]
    area = np.concatenate([[0.0], np.cumsum(level[:-1] * np.diff(moments))])
    return np.diff(np.interp(edges, moments, area))


def by_rank(requests: Requests, targets: SloTargets) -> pd.DataFrame:
    """Return one row a rank, 0 the base model: adapters, requests, means, 95th percentiles and attainment.

    Columns: rank, adapters, requests, ttft_s, ttft_p95_s, tpot_p95_s, latency_p95_s, attainment.
    """
    frame = pd.DataFrame(
        {
            "rank": requests["rank"].fillna(0).to_numpy(dtype=np.int64),
            "adapter": requests["adapter"].astype(object).to_numpy(),
            "met": met(requests, targets),
            **{name: column(requests, name) for name in ("ttft_s", "tpot_s", "latency_s")},
        }
    )
    groups = frame.groupby("rank")
    tails = {f"{name[:-2]}_p95_s": groups[name].quantile(0.95) for name in ("ttft_s", "tpot_s", "latency_s")}
    return pd.DataFrame(
        {
            "adapters": groups["adapter"].nunique(),
            "requests": groups.size(),
            "ttft_s": groups["ttft_s"].mean(),
            **tails,
            "attainment": groups["met"].mean(),
        }
    ).reset_index()
