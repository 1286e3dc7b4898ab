"""Arrival processes have the rate and the burstiness that they claim."""

from __future__ import annotations

import math

import numpy as np
import pytest

from simlora.core.errors import InputError
from simlora.workload.arrivals import Gamma, Poisson

N = 200_000


def gaps_s(process, n=N, seed=5):
    return process.gaps_s(np.random.default_rng(seed), n)


@pytest.mark.parametrize(
    "process, cv", [(Poisson(4.0), 1), (Gamma(4.0, 0.5), 0.5), (Gamma(4.0, 1), 1), (Gamma(0.1, 4), 4)]
)
def test_mean_and_variation_of_gaps(process, cv):
    gaps = gaps_s(process)
    mean_s = 1 / process.rate_rps
    assert gaps.mean() == pytest.approx(mean_s, abs=4 * cv * mean_s / math.sqrt(N))
    # standard error of a gamma's squared variation: its excess kurtosis is 6 cv^2
    error = cv**2 * math.sqrt((2 + 6 * cv**2) / N + 4 * cv**2 / N)
    assert (gaps.std() / gaps.mean()) ** 2 == pytest.approx(cv**2, abs=4 * error)


def test_a_gamma_of_variation_one_is_exponential():
    gaps = np.sort(gaps_s(Gamma(2.0, 1.0)))
    expected = 1 - np.exp(-2.0 * gaps)
    distance = np.abs(expected - np.arange(1, N + 1) / N).max()
    assert distance < 1.95 / math.sqrt(N)  # Kolmogorov-Smirnov at one in a thousand


def test_long_gaps_are_not_clipped():
    assert gaps_s(Poisson(1.0)).max() > 8  # P(max < 8) is e^-67


def test_no_variation_is_a_metronome():
    assert set(gaps_s(Gamma(4.0, 0.0), 100).tolist()) == {0.25}


@pytest.mark.parametrize("process", [Poisson(3.0), Gamma(3.0, 2.0), Gamma(3.0, 0.4)])
def test_two_short_draws_are_one_long_one(process):
    rng = np.random.default_rng(1)
    parts = np.concatenate([process.gaps_s(rng, 100), process.gaps_s(rng, 150)])
    assert np.array_equal(parts, gaps_s(process, 250, seed=1))


@pytest.mark.parametrize(
    "process, message",
    [
        (Poisson(0), "workload.arrivals.rate_rps is 0, must be greater than 0 requests per second"),
        (Poisson("many"), "workload.arrivals.rate_rps is 'many'"),
        (Gamma(-1, 1), "workload.arrivals.rate_rps is -1"),
        (Gamma(1, -0.1), "workload.arrivals.cv is -0.1, must be at least 0 and at most 1,000"),
        (Gamma(1, float("nan")), "workload.arrivals.cv is nan, must be a finite number"),
    ],
)
def test_arguments_out_of_range_are_refused_by_their_key(process, message):
    with pytest.raises(InputError, match=message):
        process.check("workload.arrivals")
