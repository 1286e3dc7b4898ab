"""Popularity: which adapter a request is for. Adapter 0 is the most popular one unless weights say otherwise."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np

from simlora.core import libm
from simlora.core.arrays import Floats, Ints
from simlora.core.checks import number, part, weights, whole
from simlora.core.errors import InputError


class Popularity(ABC):
    """A popularity. Yours needs `draw`; `rates` too where popularity drifts; `check` is there for plain errors."""

    @abstractmethod
    def draw(self, rng: np.random.Generator, adapters: int, n: int) -> Ints:
        """Return the adapter index, 0 to adapters - 1, of each of `n` requests [n]."""

    def draw_at(self, rng: np.random.Generator, adapters: int, moments: Floats) -> Ints:
        """Return the adapter index of requests that come at `moments` of the run [n], 0 its start and 1 its end.

        Only a popularity that changes over the run needs one of its own.
        """
        return self.draw(rng, adapters, len(moments))

    def check(self, key: str, adapters: int) -> None:
        """Raise InputError for an argument out of range; `key` is where it stands in the configuration."""

    def rates(self, adapters: int) -> Floats:
        """Return how popular each adapter is in the long run [adapters], relative to the others.

        Raises InputError where it is not set.
        """
        raise InputError(
            f"{type(self).__name__} draws adapters and does not say how popular each of them is; choose another "
            "workload/popularity, or give it a method rates(adapters)"
        )


class Weighted(Popularity):
    """A popularity that draws every request by the same weights, whatever came before. Yours needs `rates`."""

    @abstractmethod
    def rates(self, adapters: int) -> Floats:
        """Return the weight of each adapter [adapters], in any unit."""

    def draw(self, rng: np.random.Generator, adapters: int, n: int) -> Ints:
        return weighted_index(rng, self.rates(adapters), n)


@dataclass(frozen=True)
class Uniform(Popularity):
    """Every adapter is as popular as the next."""

    def rates(self, adapters: int) -> Floats:
        return np.ones(adapters)

    def draw(self, rng: np.random.Generator, adapters: int, n: int) -> Ints:
        return rng.integers(0, adapters, n)


@dataclass(frozen=True)
class Power(Popularity):
    """index = floor(adapters * U^(1/alpha)): alpha 1 is uniform, a small alpha piles requests on the first few.

    Source: S-LoRA's benchmark, which calls it a power law.
    """

    alpha: float = 1.0

    def check(self, key: str, adapters: int) -> None:
        number(f"{key}.alpha", self.alpha, above=0)

    def rates(self, adapters: int) -> Floats:
        rates: Floats = np.diff(libm.power(np.linspace(0.0, 1.0, adapters + 1), float(self.alpha)))
        return rates

    def draw(self, rng: np.random.Generator, adapters: int, n: int) -> Ints:
        return power_index(rng.power(self.alpha, n), adapters)


@dataclass(frozen=True)
class Zipf(Weighted):
    """Adapter i has a share proportional to 1 / (i + 1)^exponent; exponent 0 is uniform."""

    exponent: float = 1.0

    def check(self, key: str, adapters: int) -> None:
        number(f"{key}.exponent", self.exponent, least=0)

    def rates(self, adapters: int) -> Floats:
        return power_law(adapters, self.exponent)


@dataclass(frozen=True)
class LogNormal(Weighted):
    """Adapter i has a share proportional to exp(sigma_log * z), z the normal quantile of 1 - (i + 1/2) / functions.

    The adapters are the busiest of so many `functions`; None: of as many as adapters, so that they are all there are.

    Rates that differ by orders of magnitude, as those of functions in a cloud do: with sigma_log 4.08 an
    adapter is as popular as an app of Azure Functions 2019, of which 45 % are invoked at most once an hour and 81 % at
    most once a minute ("Serverless in the Wild", ATC'20, Figure 5a); the 18.6 % most popular then have 99.9 % of
    all invocations, measured 99.6 %.
    """

    sigma_log: float = 4.08
    functions: int | None = None

    def check(self, key: str, adapters: int) -> None:
        number(f"{key}.sigma_log", self.sigma_log, least=0, most=20)
        if self.functions is not None and whole(f"{key}.functions", self.functions, least=1) < adapters:
            raise InputError(
                f"{key}.functions is {self.functions:,}, must be at least the {adapters:,} adapters of "
                "workload.adapters, which are the busiest of them"
            )

    def rates(self, adapters: int) -> Floats:
        functions = adapters if self.functions is None else int(self.functions)
        return log_normal_rates(functions, float(self.sigma_log), adapters)


@dataclass(frozen=True)
class Normal(Weighted):
    """Adapters around the middle one are the most popular, by a normal density.

    Its standard deviation is `deviation` times the number of adapters. Source: FastLibra §6.9, skewed.
    """

    deviation: float = 0.1

    def check(self, key: str, adapters: int) -> None:
        number(f"{key}.deviation", self.deviation, "of the adapters", above=0)

    def rates(self, adapters: int) -> Floats:
        from_middle = np.arange(adapters) - (adapters - 1) / 2
        return libm.exp(-0.5 * (from_middle / (float(self.deviation) * adapters)) ** 2)


@dataclass(frozen=True)
class InTurn(Popularity):
    """Request i is for adapter i, counted round the adapters: with as many as requests, each has its own.

    Source: CaraServe §7.1; Punica (MLSys'24) §7, distinct.
    """

    def rates(self, adapters: int) -> Floats:
        return np.ones(adapters)

    def draw(self, rng: np.random.Generator, adapters: int, n: int) -> Ints:
        return np.arange(n, dtype=np.int64) % adapters


@dataclass(frozen=True)
class TopHeavy(Weighted):
    """The first `top` adapters have `share` of the requests together, the others the rest.

    Within either part the i-th has a share proportional to i^-exponent: `top_exponent`, `rest_exponent`.
    Source: LoRAServe §III-B, Figure 8: of over a thousand adapters five have 72.4 %, each of the others way less
    than 1 %, which no single power law gives.
    """

    top: int = 5
    share: float = 0.724
    top_exponent: float = 1.0
    rest_exponent: float = 0.5

    def check(self, key: str, adapters: int) -> None:
        number(f"{key}.share", self.share, "of the requests", least=0, most=1)
        number(f"{key}.top_exponent", self.top_exponent, least=0)
        number(f"{key}.rest_exponent", self.rest_exponent, least=0)
        if whole(f"{key}.top", self.top, "adapters", least=1) >= adapters:
            raise InputError(
                f"{key}.top is {self.top:,}, must be less than the {adapters:,} adapters of workload.adapters"
            )

    def rates(self, adapters: int) -> Floats:
        top = int(self.top)
        first, rest = power_law(top, self.top_exponent), power_law(adapters - top, self.rest_exponent)
        return np.concatenate([self.share * first / first.sum(), (1 - self.share) * rest / rest.sum()])


@dataclass(frozen=True)
class Explicit(Weighted):
    """One weight an adapter, in any unit: shares are weights over their sum."""

    weights: Sequence[float]

    def check(self, key: str, adapters: int) -> None:
        given = len(weights(f"{key}.weights", self.weights, "[3,1,1]"))
        if given != adapters:
            raise InputError(
                f"{key}.weights has {given:,} entries, must have one for each of the {adapters:,} "
                "adapters of workload.adapters"
            )

    def rates(self, adapters: int) -> Floats:
        return np.array(list(self.weights), dtype=np.float64)


def power_law(count: int, exponent: float) -> Floats:
    """Return i^-exponent for i from 1 to `count` [count]."""
    return libm.power(np.arange(1.0, count + 1.0), -float(exponent))


def power_index(shares: Floats, adapters: int) -> Ints:
    """Return floor(share * adapters), for shares in [0, 1]; a share that rounds to 1 is the last adapter."""
    index: Ints = np.minimum((shares * adapters).astype(np.int64), adapters - 1)
    return index


def log_normal_rates(functions: int, sigma_log: float, first: int | None = None) -> Floats:
    """Return the rates of functions [functions], or of the `first` ones of them, relative to the first and largest.

    They are as exp(sigma_log * z), z the normal quantile of 1 - (i + 1/2) / functions.
    """
    quantile = NormalDist().inv_cdf
    count = functions if first is None else first
    logs = np.array([quantile(1.0 - (i + 0.5) / functions) for i in range(count)], dtype=np.float64)
    return libm.exp(sigma_log * (logs - logs[0]))


def weighted_index(rng: np.random.Generator, weights: Floats, n: int) -> Ints:
    """Return `n` indices drawn by weight; an index of weight 0 never comes."""
    edges = np.cumsum(weights)
    index = np.searchsorted(edges, rng.random(n) * edges[-1], side="right").astype(np.int64)
    bounded: Ints = np.minimum(index, np.flatnonzero(weights)[-1])  # should the product round up
    return bounded


def check_popularity(popularity: Any, adapters: int) -> None:
    """Raise InputError unless what a workload has as its popularity is one that will do for so many adapters."""
    part("workload.popularity", popularity, Popularity, "power")
    popularity.check("workload.popularity", adapters)
