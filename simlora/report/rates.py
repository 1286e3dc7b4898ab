"""What happened when: requests and tokens a second, first tokens and the SLO, in equal stretches of time."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from simlora.metrics.slo import SloTargets, column, known, met
from simlora.metrics.stored import Requests
from simlora.report.groups import Groups

STRETCHES = 60
CHUNK = 1 << 18
"""Requests at a time that are counted and whose tokens are spread: ten million at once took 1.5 GB."""


def by_time(requests: Requests, targets: SloTargets, stretches: int = STRETCHES) -> pd.DataFrame:
    """Return a row for each stretch of the time from 0 to the last token; none if nothing happened.

    Columns: `time_s`, its middle; requests a second by what they did: `arrivals_rps`, `first_tokens_rps`,
    `finished_rps`; `tokens_per_s`, output tokens, those of a request spread evenly from its first to its last; and of
    the requests that arrived in it `attainment`, `ttft_p50_s` and `ttft_p95_s`, NaN where there are none.
    """
    arrival_s, ttft_s, latency_s = (column(requests, name) for name in ("arrival_s", "ttft_s", "latency_s"))
    parts = [slice(begin, begin + CHUNK) for begin in range(0, len(arrival_s), CHUNK)]
    end_s = max(
        (
            float(np.nanmax(arrival_s[part] + waits_s[part], initial=0.0))
            for part in parts
            for waits_s in (ttft_s, latency_s)
        ),
        default=0.0,
    )
    end_s = max(end_s, float(np.nanmax(arrival_s, initial=0.0)))
    if not end_s > 0:
        return pd.DataFrame()
    edges = np.linspace(0.0, end_s, stretches + 1)
    counts = {name: np.zeros(stretches) for name in ("arrivals_rps", "first_tokens_rps", "finished_rps")}
    tokens, output_tokens = np.zeros(stretches), column(requests, "output_tokens")
    for part in parts:
        first_s, last_s = arrival_s[part] + ttft_s[part], arrival_s[part] + latency_s[part]
        for count, times_s in zip(counts.values(), (arrival_s[part], first_s, last_s), strict=True):
            count += np.histogram(times_s[~np.isnan(times_s)], edges)[0]
        tokens += _spread(first_s, last_s, output_tokens[part], edges)
    del latency_s, output_tokens
    of_arrivals = _of_arrivals(arrival_s, ttft_s, met(requests, targets), edges)
    times = {"time_s": (edges[1:] + edges[:-1]) / 2}
    rates = {name: count / edges[1] for name, count in (counts | {"tokens_per_s": tokens}).items()}
    return pd.DataFrame(times | rates | of_arrivals)


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
    codes, ranks = pd.factorize(requests["rank"].fillna(0).to_numpy(dtype=np.int64), sort=True)
    groups = Groups(codes, len(ranks))
    adapters, names = pd.factorize(requests["adapter"])
    pairs = pd.unique(
        codes * (len(names) + 1) + adapters + 1
    )  # 0 in the place of an adapter is the base model
    del adapters
    tails = {f"{name[:-2]}_p95_s": groups.quantile(column(requests, name), 0.95) for name in TAILS}
    return pd.DataFrame(
        {
            "rank": ranks,
            "adapters": np.bincount(
                pairs // (len(names) + 1), pairs % (len(names) + 1) > 0, len(ranks)
            ).astype(np.int64),
            "requests": groups.sizes,
            "ttft_s": groups.mean(column(requests, "ttft_s")),
            **tails,
            "attainment": groups.mean(met(requests, targets)),
        }
    )


TAILS = ("ttft_s", "tpot_s", "latency_s")
"""Columns of which by_rank returns 95th percentiles."""
