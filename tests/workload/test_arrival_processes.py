"""Arrival processes have the rate and the burstiness that they claim."""

import math

import numpy as np
import pytest

from simlora.core import libm
from simlora.core.errors import InputError
from simlora.workload.arrivals import Diurnal, Gamma, Poisson, before

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
        (Gamma(-1, 1), "workload.arrivals.rate_rps is -1"),
        (Gamma(1, -0.1), "workload.arrivals.cv is -0.1, must be at least 0 and at most 1,000"),
        (Diurnal(1.0, peak_to_trough=0.5), r"arrivals\.peak_to_trough is 0\.5, must be at least 1"),
        (Diurnal(1.0, period_s=0), r"arrivals\.period_s is 0, must be greater than 0"),
    ],
)
def test_arguments_out_of_range_are_refused_by_their_key(process, message):
    with pytest.raises(InputError, match=message):
        process.check("workload.arrivals")


def diurnal_s(duration_s=40_000.0, **changes):
    process = Diurnal(**({"rate_rps": 10.0, "period_s": 1000.0, "peak_to_trough": 4.0} | changes))
    return before(duration_s, process, np.random.default_rng(5))


def test_a_diurnal_rate_is_what_it_is_on_average_and_at_its_peak_and_its_trough():
    """A tenth of the period around each extreme: the mean of a sine there is within 2 % of the extreme."""
    arrival_s = diurnal_s()
    assert len(arrival_s) == pytest.approx(400_000, abs=4 * math.sqrt(400_000))
    phase = arrival_s % 1000 / 1000
    trough, peak = (phase < 0.05) | (phase >= 0.95), abs(phase - 0.5) < 0.05
    assert trough.sum() / 4000 == pytest.approx(4.0, rel=0.05)
    assert peak.sum() / 4000 == pytest.approx(16.0, rel=0.02)


def test_a_diurnal_process_is_poisson_on_its_own_clock():
    """Warped back by the expected number of requests, its gaps are exponential."""
    arrival_s = diurnal_s()
    swing = 3 / 5
    expected = 10.0 * (arrival_s - swing * 1000 / (2 * np.pi) * libm.sin(2 * np.pi * arrival_s / 1000))
    gaps = np.sort(np.diff(expected))
    distance = np.abs(1 - libm.exp(-gaps) - np.arange(1, len(gaps) + 1) / len(gaps)).max()
    assert distance < 1.95 / math.sqrt(len(gaps))


def test_a_longer_diurnal_time_begins_with_the_shorter_one():
    assert diurnal_s(700.0).tolist() == diurnal_s(900.0)[: len(diurnal_s(700.0))].tolist()
