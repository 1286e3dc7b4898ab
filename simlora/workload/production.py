"""A trace like one of production: a few ranks whose load drifts, each divided among many adapters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from simlora.core.arrays import Floats, Ints
from simlora.core.checks import listed, number, weights, whole
from simlora.core.errors import InputError
from simlora.core.random import stream
from simlora.core.trace import AdapterSpec, Trace
from simlora.workload.adapters import check_adapters, check_ranks
from simlora.workload.arrivals import REQUESTS_MAX, no_request
from simlora.workload.lengths import Lengths
from simlora.workload.pairs import Pairs, check_lengths, draw_lengths
from simlora.workload.popularity import power_law, weighted_index
from simlora.workload.shape import Shape

SLOTS = 480
"""Of a trend, at least: one a minute, in 8 hours."""


@dataclass(frozen=True)
class Production:
    """Exactly `requests` requests in `span_s` seconds, of which rank i has its part of `shares`, in whole requests.

    Those of rank i come independent of each other, at a rate that goes as `trends[i]` does: relative rates at even
    steps from start to end, joined by straight lines. They are divided at random among adapters of that rank, the j-th
    of which has a share proportional to j^-split_exponent; the i-th smallest rank has a number of adapters proportional
    to i^-adapters_exponent, and at least one. With `rate_rps` all arrivals are scaled so that it is the mean over the
    whole trace; then only those before `duration_s` stay. Lengths are as in Synthetic.

    Each part draws from its own stream of the run's seed: another rate, or an end, leaves all else as it was.
    Source: LoRAServe §V-E; that all requests of a rank are independent is ours.
    """

    prompt_tokens: Lengths
    output_tokens: Lengths
    shares: Sequence[float]
    trends: Sequence[Sequence[float]]
    lengths: Pairs | None = None
    correlation: float = 0.0
    adapters: int = 100
    ranks: Sequence[int] = (8, 16, 32, 64, 128)
    split_exponent: float = 1.0
    adapters_exponent: float = 0.0
    requests: int = 250_138
    span_s: float = 28_800.0
    rate_rps: float | None = None
    duration_s: float | None = None

    def __post_init__(self) -> None:
        ranks = len(check_ranks(self.ranks))
        check_adapters(self.adapters, self.ranks, least=ranks)
        _one_each("workload.shares", weights("workload.shares", self.shares, "[5,4,3,2,1]"), ranks)
        trends = listed("workload.trends", self.trends, "[[1,2],[1]]")
        _one_each("workload.trends", trends, ranks)
        for i, rates in enumerate(trends):
            weights(f"workload.trends[{i}]", rates, "[1,3,2]")
        number("workload.split_exponent", self.split_exponent, least=0)
        number("workload.adapters_exponent", self.adapters_exponent, least=0)
        whole("workload.requests", self.requests, "requests", least=1, most=REQUESTS_MAX)
        number("workload.span_s", self.span_s, "seconds", above=0)
        if self.rate_rps is not None:
            number("workload.rate_rps", self.rate_rps, "requests per second", above=0)
        if self.duration_s is not None:
            number("workload.duration_s", self.duration_s, "seconds", above=0)
        check_lengths(self.prompt_tokens, self.output_tokens, self.lengths, self.correlation)

    @property
    def requests_of(self) -> Ints:
        """Return how many requests each rank has [ranks]."""
        return apportioned(int(self.requests), np.array(list(self.shares), dtype=np.float64))

    @property
    def adapters_of(self) -> Ints:
        """Return how many adapters each rank has [ranks], at least one."""
        smallest_first = np.argsort(list(self.ranks), kind="stable")
        weights = np.empty(len(smallest_first))
        weights[smallest_first] = power_law(len(weights), self.adapters_exponent)
        counts = apportioned(int(self.adapters), weights)
        return counts if counts.all() else 1 + apportioned(int(self.adapters) - len(weights), weights)

    @property
    def end_s(self) -> float:
        """Return the run's end, before duration_s may cut it."""
        return self.span_s if self.rate_rps is None else self.requests / self.rate_rps

    def build(self, seed: int) -> Trace:
        """Return the trace for the run's seed."""
        arrival_s = self._arrival_s(stream(seed, "arrivals"))
        rank, adapter = self._adapters(stream(seed, "adapters"))
        prompts, outputs = draw_lengths(
            seed, len(arrival_s), self.prompt_tokens, self.output_tokens, self.lengths, self.correlation
        )
        order = np.argsort(arrival_s, kind="stable")
        kept = len(order)
        if self.duration_s is not None:
            kept = int(np.searchsorted(arrival_s[order], self.duration_s))
            if not kept:
                raise no_request(self.duration_s, "workload.rate_rps")
        order, ranks = order[:kept], check_ranks(self.ranks)
        return Trace(
            arrival_s=arrival_s[order],
            adapter=adapter[order],
            prompt_tokens=prompts[:kept],
            output_tokens=outputs[:kept],
            max_output_tokens=outputs[:kept],
            adapters=tuple(AdapterSpec(f"adapter_{i}", ranks[place]) for i, place in enumerate(rank)),
            source=f"like LoRAServe's production trace, {len(self.ranks)} ranks over {self.adapters:,} adapters",
        )

    def _arrival_s(self, rng: np.random.Generator) -> Floats:
        """Return when requests come [requests], one rank's after the other."""
        arrival_s = []
        for own, rates, n in zip(rng.spawn(len(self.ranks)), self.trends, self.requests_of, strict=True):
            moments_s, shown_s = trend(rates).elapsed(self.end_s, None, "workload.trends")
            arrival_s.append(np.interp(np.sort(own.random(n)) * self.end_s, shown_s, moments_s))
        return np.concatenate(arrival_s)

    def _adapters(self, rng: np.random.Generator) -> tuple[Ints, Ints]:
        """Return the place of each adapter's rank in `ranks` [adapters], and the adapters of requests, rank by rank.

        The busiest adapter of every rank comes first, then the second of every rank that has one, and so on: with as
        many of each, adapter i has ranks[i mod len].
        """
        counts = self.adapters_of
        rank = np.repeat(np.arange(len(counts)), counts)
        place = np.concatenate([np.arange(count) for count in counts])
        rank = rank[np.lexsort((rank, place))]
        adapter = []
        for i, (own, n) in enumerate(zip(rng.spawn(len(counts)), self.requests_of, strict=True)):
            shares = power_law(int(counts[i]), self.split_exponent)
            adapter.append(np.flatnonzero(rank == i)[weighted_index(own, shares, int(n))])
        return rank, np.concatenate(adapter)


def trend(rates: Sequence[float]) -> Shape:
    """Return relative rates at even steps, joined by straight lines, as the means of SLOTS equal parts or more."""
    marks = np.array(list(rates), dtype=np.float64)
    slots = max(SLOTS, 8 * len(marks))
    middles = (np.arange(slots) + 0.5) / slots
    return Shape(np.interp(middles, np.linspace(0.0, 1.0, len(marks)), marks))


def apportioned(total: int, weights: Floats) -> Ints:
    """Return `total` in whole parts [parts] proportional to `weights`: the largest remainders are rounded up."""
    exact = total * weights / weights.sum()
    parts: Ints = np.floor(exact).astype(np.int64)
    up = np.argsort(parts - exact, kind="stable")[: total - int(parts.sum())]
    parts[up] += 1
    return parts


def _one_each(key: str, entries: tuple[Any, ...], ranks: int) -> None:
    """Raise InputError, naming `key`, unless there is one entry for each rank."""
    if len(entries) != ranks:
        raise InputError(
            f"{key} has {len(entries)} entries, must have one for each of the {ranks} of workload.ranks"
        )
