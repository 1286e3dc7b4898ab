"""Arrival processes: how much time lies between one request and the next."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from simlora.core import libm
from simlora.core.arrays import Floats
from simlora.core.checks import number, part
from simlora.core.errors import InputError

REQUESTS_MAX = 100_000_000
PHASES = 10_001
"""Moments of a period between which the rate is taken as constant."""
CV_MIN, CV_MAX = 1e-6, 1000
"""Below the first, gaps are all but equal; both keep the gamma's parameters finite."""


class Arrivals(ABC):
    """An arrival process. Yours needs `gaps_s`; `check` is there for plain errors.

    `steady`: the rate is the same at all times.
    """

    steady: ClassVar[bool] = True

    @abstractmethod
    def gaps_s(self, rng: np.random.Generator, n: int) -> Floats:
        """Return the next `n` gaps [n] in seconds; two calls for n and m draw what one for n + m would."""

    def arrivals_s(self, gaps_s: Floats) -> Floats:
        """Return when requests arrive that follow each other after these gaps, the first from 0 on [n]."""
        return np.cumsum(gaps_s)

    def check(self, key: str) -> None:
        """Raise InputError for an argument out of range; `key` is where it stands in the configuration."""


@dataclass(frozen=True)
class Poisson(Arrivals):
    """Exponential gaps: independent users."""

    rate_rps: float

    def check(self, key: str) -> None:
        number(f"{key}.rate_rps", self.rate_rps, "requests per second", above=0)

    def gaps_s(self, rng: np.random.Generator, n: int) -> Floats:
        return rng.exponential(1 / self.rate_rps, n)


@dataclass(frozen=True)
class Gamma(Arrivals):
    """Gamma gaps of mean 1/rate_rps and coefficient of variation `cv`: 0 is a metronome, 1 Poisson, more bursty.

    Source: S-LoRA (MLSys'24) §7.1, AlpaServe (OSDI'23) §6.2.
    """

    rate_rps: float
    cv: float = 1.0

    def check(self, key: str) -> None:
        number(f"{key}.rate_rps", self.rate_rps, "requests per second", above=0)
        number(f"{key}.cv", self.cv, least=0, most=CV_MAX)

    def gaps_s(self, rng: np.random.Generator, n: int) -> Floats:
        if self.cv < CV_MIN:
            return np.full(n, 1 / self.rate_rps)
        return rng.gamma(1 / self.cv**2, self.cv**2 / self.rate_rps, n)


@dataclass(frozen=True)
class Diurnal(Arrivals):
    """Independent users, more of them by day: a Poisson process whose rate goes up and down like a sine.

    `rate_rps` is the mean over a period of `period_s`, in which the rate rises from its least to `peak_to_trough` times
    that and falls back. Exact: the arrivals of a Poisson process of constant rate, each at the time by which the
    expected number is the same.
    """

    steady: ClassVar[bool] = False
    rate_rps: float
    period_s: float = 86_400.0
    peak_to_trough: float = 4.0

    def check(self, key: str) -> None:
        number(f"{key}.rate_rps", self.rate_rps, "requests per second", above=0)
        number(f"{key}.period_s", self.period_s, "seconds", above=0)
        number(f"{key}.peak_to_trough", self.peak_to_trough, least=1)

    def gaps_s(self, rng: np.random.Generator, n: int) -> Floats:
        return rng.exponential(1 / self.rate_rps, n)

    def arrivals_s(self, gaps_s: Floats) -> Floats:
        whole, part = np.divmod(np.cumsum(gaps_s), self.period_s)
        swing = (self.peak_to_trough - 1) / (self.peak_to_trough + 1)
        # Within a period, expected requests over the mean rate at each of its moments: straight in between.
        phase = np.linspace(0, 1, PHASES)
        expected = phase - swing * libm.sin(2 * np.pi * phase) / (2 * np.pi)
        return np.asarray(self.period_s * (whole + np.interp(part / self.period_s, expected, phase)))


def before(
    duration_s: float, arrivals: Arrivals, rng: np.random.Generator, key: str = "workload.arrivals"
) -> Floats:
    """Return the arrivals before `duration_s` [requests]; a longer time begins with the shorter one.

    Raises InputError, naming `key` as where the rate stands, for none and for more than REQUESTS_MAX.
    """
    gaps_s = arrivals.gaps_s(rng, 1024)
    arrival_s = arrivals.arrivals_s(gaps_s)
    while arrival_s[-1] < duration_s:
        drawn = len(gaps_s)
        if drawn > REQUESTS_MAX:
            raise InputError(
                f"workload.duration_s is {duration_s:g} seconds, in which {key} brings more "
                f"than {REQUESTS_MAX:,} requests; lower one of them"
            )
        gaps_s = np.concatenate([gaps_s, arrivals.gaps_s(rng, drawn)])
        arrival_s = arrivals.arrivals_s(gaps_s)
    arrival_s = arrival_s[: int(np.searchsorted(arrival_s, duration_s))]
    if not len(arrival_s):
        raise no_request(duration_s, f"the rate of {key}")
    return arrival_s


def no_request(duration_s: float, rate: str) -> InputError:
    """Return the sentence for a duration that is over before the first arrival."""
    return InputError(
        f"workload.duration_s is {duration_s:g} seconds, in which no request arrives; make it longer or raise {rate}"
    )


def check_arrivals(arrivals: Any) -> None:
    """Raise InputError unless what a workload has as its arrivals is a process that will do."""
    part("workload.arrivals", arrivals, Arrivals, "poisson")
    arrivals.check("workload.arrivals")
