"""Adapters as busy as the functions of a serverless cloud, several of which are mapped to each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from simlora.core.arrays import Floats, Ints
from simlora.core.checks import number, switch, whole
from simlora.core.random import stream
from simlora.core.trace import Trace
from simlora.workload.adapters import adapter_specs, check_adapters
from simlora.workload.arrivals import REQUESTS_MAX, no_request
from simlora.workload.lengths import Lengths
from simlora.workload.pairs import check_length, draw_lengths
from simlora.workload.popularity import log_normal_rates
from simlora.workload.renewals import check_renewals, epoch_factors, of_their_own
from simlora.workload.shape import FLAT, Shape, as_shape

FUNCTIONS_MAX = 1_000_000


@dataclass(frozen=True)
class Functions:
    """Requests for `duration_s` seconds at a mean of `rate_rps`, of adapters whose rates and moments are all their own.

    The rates of `functions` are log-normal, quantile by quantile (`popularity.LogNormal` says where sigma_log is from).
    Sorted, the first `stride` of them are mapped to adapter 0, the next `stride` to adapter 1, and so on, round and
    round. A larger stride skews more: adapter 0 gets more of the busiest. With `sort` false they are mapped in an order
    drawn at random.

    The run has `epochs` of equal length, in each of which a function's rate is multiplied by a log-normal factor of its
    own, of `epoch_sigma_log`, and then all of them so that the total stays: some are busy for an hour, and then idle.

    An adapter's requests have gamma gaps of coefficient of variation `cv` (1: Poisson), seen from a moment chosen at
    random, so that the rate is what is asked for whatever cv is. They are gaps on a clock that goes faster when more
    comes: `shape` over a day of `day_s` seconds, normed to the mean of the run. See `shape.as_shape` and `elapsed`.

    Lengths are multiplied by `length_scale`; where a prompt and its answer then have more than `context_tokens`
    together, both are cut in proportion.

    Source: dLoRA (OSDI'24) §7.1 and §7.4, and its artifact. It differs: their functions are counted in the Azure
    Functions traces (MAF1 and MAF2), of which six hours or, for Figure 9, two, with shares of their own, are pressed
    into 100 seconds; in all of them the total rate is the same, as if the shape were null. By how much shares differ is
    not published. For Figures 10, 11a and 13 they sort functions by how often they are called, for Figures 2b, 9, 11b
    and 12 by the hashes that are their names. In their Figure 11b only answers are longer: the prompts that they send
    are not.
    """

    prompt_tokens: Lengths
    output_tokens: Lengths
    adapters: int = 8
    ranks: Sequence[int] = (8,)
    functions: int = 46_412
    sigma_log: float = 4.08
    stride: int = 1
    sort: bool = True
    epochs: int = 1
    epoch_sigma_log: float = 0.0
    rate_rps: float = 4.0
    cv: float = 1.0
    duration_s: float = 100.0
    shape: Any = None
    day_s: float | None = None
    length_scale: float = 1.0
    context_tokens: int | None = 2048

    def __post_init__(self) -> None:
        check_adapters(self.adapters, self.ranks)
        whole("workload.functions", self.functions, "functions", least=1, most=FUNCTIONS_MAX)
        number("workload.sigma_log", self.sigma_log, least=0, most=20)
        whole("workload.stride", self.stride, "functions", least=1)
        switch("workload.sort", self.sort)
        check_renewals(
            self.cv, self.epochs, self.epoch_sigma_log, self.duration_s, self.day_s, self.context_tokens
        )
        number("workload.rate_rps", self.rate_rps, "requests per second", above=0)
        expected = self.rate_rps * self.duration_s
        number("workload.rate_rps x workload.duration_s", expected, "requests", most=REQUESTS_MAX)
        number("workload.length_scale", self.length_scale, above=0, most=1000)
        check_length("prompt_tokens", self.prompt_tokens)
        check_length("output_tokens", self.output_tokens)
        if self._shape is not FLAT:
            self._shape.elapsed(self.duration_s, self.day_s, "workload.shape")

    @cached_property
    def _shape(self) -> Shape:
        return as_shape(self.shape, "workload.shape")

    @property
    def shares(self) -> Floats:
        """Return the share of requests that each adapter has in the long run, of sorted functions [adapters].

        It is 0 without functions.
        """
        return self._mapped(self._weights)

    @property
    def _weights(self) -> Floats:
        return log_normal_rates(int(self.functions), float(self.sigma_log))

    def _mapped(self, weights: Floats) -> Floats:
        """Return the adapters' shares [adapters] of functions' weights [functions]."""
        adapters = int(self.adapters)
        mapped = np.arange(len(weights)) // int(self.stride) % adapters
        rates = np.bincount(mapped, weights, minlength=adapters)
        shares: Floats = rates / rates.sum()
        return shares

    def _by_epoch(self, rng: np.random.Generator, weights: Floats) -> Floats:
        """Return the adapters' shares of each epoch [epochs, adapters], of functions' weights [functions]."""
        if not self.epoch_sigma_log:
            return np.tile(self._mapped(weights), (int(self.epochs), 1))
        factors = epoch_factors(rng, int(self.epochs), len(weights), float(self.epoch_sigma_log))
        return np.stack([self._mapped(weights * of_epoch) for of_epoch in factors])

    @property
    def lasts(self) -> dict[str, float]:
        """The keys that say how long it goes on; none with a `shape`, whose rate is another later."""
        return {} if self.shape is not None else {"duration_s": self.duration_s, "epochs": self.epochs}

    def build(self, seed: int) -> Trace:
        """Return the trace for the run's seed."""
        rng = stream(seed, "adapters")
        weights = self._weights if self.sort else rng.permutation(self._weights)
        rates_rps = self.rate_rps * self._by_epoch(rng, weights)
        arrival_s, adapter = self._arrivals(stream(seed, "arrivals"), rates_rps)
        prompts, outputs = draw_lengths(
            seed, len(arrival_s), self.prompt_tokens, self.output_tokens, None, 0.0
        )
        prompts, outputs = scaled(prompts, outputs, self.length_scale, self.context_tokens)
        return Trace(
            arrival_s=arrival_s,
            adapter=adapter,
            prompt_tokens=prompts,
            output_tokens=outputs,
            max_output_tokens=outputs,
            adapters=adapter_specs(self.adapters, self.ranks),
            source=f"{self.functions:,} functions on {self.adapters:,} adapters, {self.stride:,} at a time",
            history_rps=self.rate_rps * self._mapped(weights),
        )

    def _arrivals(self, rng: np.random.Generator, rates_rps: Floats) -> tuple[Floats, Ints]:
        """Return when requests come and for whom [requests], by (time, adapter), at rates [epochs, adapters]."""
        arrival_s, adapter = of_their_own(rng, rates_rps, self.duration_s, self.cv)
        if not len(arrival_s):
            raise no_request(self.duration_s, "workload.rate_rps")
        if self._shape is not FLAT:
            edges_s, passed_s = self._shape.elapsed(self.duration_s, self.day_s, "workload.shape")
            arrival_s = np.interp(arrival_s, passed_s, edges_s)
        order = np.argsort(arrival_s, kind="stable")
        return arrival_s[order], adapter[order]


def scaled(prompts: Ints, outputs: Ints, scale: float, context_tokens: int | None) -> tuple[Ints, Ints]:
    """Return prompts and answers [requests] of `scale` times as many tokens, and no more than the context together.

    A prompt keeps its share of the two, rounded down, and both have at least one token. Source: dLoRA's artifact.
    """
    together = prompts + outputs
    total = np.maximum(np.floor(together * scale).astype(np.int64), 2)
    if context_tokens is not None:
        total = np.minimum(total, int(context_tokens))
    prompts = np.clip(prompts * total // together, 1, total - 1)
    return prompts, total - prompts
