"""A trace like LoRAServe's production trace: how many requests each rank has, when they come, how they are divided."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simlora.workload.production import apportioned
from tests.workload.test_every_workload import COLUMNS, FIVE, WORKLOADS, changed

TRENDS = ([1, 3], [1], [0, 1, 0], [1, 1, 4], [2, 1])
PLAIN = replace(WORKLOADS["production"], requests=60_000, duration_s=None)
SMALL = replace(PLAIN, requests=500)


def rank_of(trace):
    """Return the rank of each request [requests]."""
    return np.array([spec.rank for spec in trace.adapters])[trace.adapter]


# How many ------------------------------------------------------------------------------------


def test_every_rank_has_exactly_its_part():
    trace = PLAIN.build(1)
    assert len(trace) == 60_000
    ranks, counts = np.unique(rank_of(trace), return_counts=True)
    assert ranks.tolist() == [8, 16, 32, 64, 128]
    assert counts.tolist() == [20_000, 16_000, 12_000, 8000, 4000]


@given(total=st.integers(0, 10**6), weights=st.lists(st.floats(0, 1e3), min_size=1, max_size=9))
def test_whole_parts_add_up_and_are_off_by_less_than_one(total, weights):
    weights = np.array([*weights, 1.0])
    parts = apportioned(total, weights)
    assert parts.sum() == total
    assert np.all(np.abs(parts - total * weights / weights.sum()) < 1 + 1e-6)


@pytest.mark.parametrize(
    "adapters, counts", [(50, [22, 11, 7, 6, 4]), (100, [44, 22, 14, 11, 9]), (6, [2, 1, 1, 1, 1])]
)
def test_the_smaller_ranks_may_have_more_adapters(adapters, counts):
    """Proportional to i^-1; a rank that would have none has one."""
    chosen = replace(SMALL, adapters=adapters, adapters_exponent=1)
    assert chosen.adapters_of.tolist() == counts
    found = [spec.rank for spec in chosen.build(1).adapters]
    assert [found.count(rank) for rank in FIVE] == counts
    assert found[:5] == list(FIVE)
    backwards = replace(chosen, ranks=FIVE[::-1])
    assert backwards.adapters_of.tolist() == counts[::-1]


@pytest.mark.parametrize("exponent", [0, 1, 60])
def test_requests_of_a_rank_are_divided_by_a_power_law(exponent):
    trace = replace(PLAIN, split_exponent=exponent).build(1)
    shares = np.arange(1.0, 21.0) ** -exponent
    for i, n in enumerate(PLAIN.requests_of):
        found = np.bincount(trace.adapter, minlength=100)[i::5]
        expected = n * shares / shares.sum()
        assert np.all(np.abs(found - expected) <= 4.5 * np.sqrt(expected))


# When ----------------------------------------------------------------------------------------


def expected(rates, windows):
    """Return the share of requests in equal windows of a run [windows]: the area under straight lines."""
    fine = np.linspace(0, 1, 12_001)
    area = np.interp((fine[1:] + fine[:-1]) / 2, np.linspace(0, 1, len(rates)), np.array(rates, dtype=float))
    return area.reshape(windows, -1).sum(axis=1) / area.sum()


@pytest.mark.parametrize("i", range(5))
def test_requests_of_a_rank_follow_its_trend(i):
    trace = PLAIN.build(1)
    found = np.histogram(trace.arrival_s[rank_of(trace) == FIVE[i]], 8, (0, 6000))[0]
    shares = expected(TRENDS[i], 8)
    error = np.sqrt(found.sum() * shares * (1 - shares))
    assert np.all(np.abs(found - found.sum() * shares) < 4.5 * error)


def test_a_rate_scales_the_timestamps_and_nothing_else():
    fast = replace(PLAIN, rate_rps=40.0)
    assert changed(PLAIN, fast) == {"arrival_s"}
    assert fast.build(1).arrival_s == pytest.approx(PLAIN.build(1).arrival_s / 4)
    assert fast.end_s == 1500
    assert replace(PLAIN, rate_rps=10.0).build(1).arrival_s == pytest.approx(PLAIN.build(1).arrival_s)


def test_an_end_leaves_what_comes_before_it_as_it_was():
    whole, cut = PLAIN.build(1), replace(PLAIN, duration_s=1000.0).build(1)
    assert cut.arrival_s[-1] < 1000 <= whole.arrival_s[len(cut)]
    for name in COLUMNS:
        assert np.array_equal(getattr(cut, name), getattr(whole, name)[: len(cut)])
    scaled = replace(PLAIN, duration_s=250.0, rate_rps=40.0).build(1)
    assert len(scaled) == len(cut)
