"""Popularity by rank: shares at every moment of the run, and adapters of one rank that are alike."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simlora.core import libm
from simlora.core.errors import InputError
from simlora.workload.by_rank import Exponential, PowerLaw, ShiftingSkew
from simlora.workload.popularity import Popularity

RANKS = (8, 16, 32, 64, 128)
N = 100_000
EVENLY = (np.arange(N) + 0.5) / N
ALL = [
    ShiftingSkew(RANKS),
    Exponential(RANKS),
    PowerLaw(RANKS),
    PowerLaw(RANKS, 0.0),
    ShiftingSkew(RANKS, 1.0),
]


def places(popularity, moments, adapters=25, seed=3):
    """Return the place of each request's rank, 0 the smallest [n]."""
    ranks = np.resize(popularity.ranks, adapters)
    drawn = popularity.draw_at(np.random.default_rng(seed), adapters, moments)
    return np.searchsorted(sorted(set(popularity.ranks)), ranks[drawn])


def assert_shares(found, expected):
    """Within 4.5 standard errors of so many draws [n] of a share, each with a probability of its own [n, ranks]."""
    counts = np.bincount(found, minlength=expected.shape[1])
    error = np.sqrt((expected * (1 - expected)).sum(axis=0))
    assert np.all(np.abs(counts - expected.sum(axis=0)) <= 4.5 * error + 1e-9)


# Shares --------------------------------------------------------------------------------------


def drift(moment):
    """LoRAServe: an eighth each for the others, and a linear change of the lowest and of the highest."""
    return [1 / 8 + 3 / 8 * moment, 1 / 8, 1 / 8, 1 / 8, 1 / 2 - 3 / 8 * moment]


@pytest.mark.parametrize(
    "popularity, moment, weights",
    [
        *((ShiftingSkew(RANKS), moment, drift(moment)) for moment in (0.0, 0.25, 0.5, 1.0)),
        (ShiftingSkew((8, 16, 32), 0.9), 0.0, [0.05, 0.05, 0.9]),
        (ShiftingSkew((8, 16, 32), 0.9), 1.0, [0.9, 0.05, 0.05]),
        (ShiftingSkew((8, 8), 0.3), 0.0, [1.0]),
        (Exponential(RANKS, 0.5), 0.0, libm.exp(-0.5 * np.arange(5))),
        (Exponential(RANKS), 0.7, [0.6364, 0.2341, 0.0861, 0.0317, 0.0117]),  # as LoRAServe has it
        *((PowerLaw(RANKS, alpha), 0.4, np.arange(1.0, 6.0) ** -alpha) for alpha in (1 / 3, 1.0, 3.0)),
    ],
    ids=repr,
)
def test_a_rank_has_its_share_at_every_moment(popularity, moment, weights):
    assert popularity.shares(np.array([moment]))[0] == pytest.approx(
        np.array(weights) / np.sum(weights), abs=5e-5
    )


def test_the_highest_rank_has_what_lora_serve_says_it_has():
    """At alpha 1/3 at least 16 %, they say: in x^-alpha x counts ranks. The ranks' own values would give it 12 %."""
    largest = PowerLaw(RANKS, 1 / 3).shares(np.zeros(1))[0, -1]
    assert round(largest, 2) == 0.16
    by_value = np.array(RANKS) ** (-1 / 3)
    assert round(by_value[-1] / by_value.sum(), 2) == 0.12


# Draws ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("popularity", ALL, ids=repr)
@pytest.mark.parametrize("window", range(4))
def test_requests_have_the_shares_of_their_moment(popularity, window):
    part = slice(window * N // 4, (window + 1) * N // 4)
    assert_shares(places(popularity, EVENLY)[part], popularity.shares(EVENLY[part]))


@pytest.mark.parametrize("adapters", [5, 25, 23])
def test_adapters_of_a_rank_are_alike(adapters):
    popularity = PowerLaw(RANKS, 1.0)
    counts = np.bincount(popularity.draw(np.random.default_rng(1), adapters, N), minlength=adapters)
    rank = np.arange(adapters) % 5
    expected = N * popularity.shares(np.zeros(1))[0][rank] / np.bincount(rank)[rank]
    assert np.all(np.abs(counts - expected) < 4.5 * np.sqrt(expected))


def test_ranks_come_in_any_order_and_more_than_once():
    popularity = PowerLaw((64, 8, 64), 2.0)
    assert popularity.rates(6) == pytest.approx([0.05, 0.4, 0.05, 0.05, 0.4, 0.05])
    assert_shares(places(popularity, EVENLY, 6), np.tile([0.8, 0.2], (N, 1)))


@given(
    popularity=st.sampled_from(ALL),
    seed=st.integers(0, 2**32),
    moments=st.lists(st.floats(0, 1), max_size=40),
)
def test_fewer_requests_are_the_first_of_more(popularity, seed, moments):
    moments = np.array(moments)
    drawn = popularity.draw_at(np.random.default_rng(seed), 23, moments)
    fewer = popularity.draw_at(np.random.default_rng(seed), 23, moments[:7])
    assert np.array_equal(fewer, drawn[:7])


def test_without_moments_requests_are_spread_evenly_and_without_drift_moments_do_not_matter():
    class First(Popularity):
        def draw(self, rng, adapters, n):
            return np.zeros(n, dtype=np.int64)

    popularity = ShiftingSkew(RANKS)
    drawn = popularity.draw(np.random.default_rng(2), 25, N)
    assert np.array_equal(drawn, popularity.draw_at(np.random.default_rng(2), 25, EVENLY))
    assert First().draw_at(np.random.default_rng(0), 3, np.array([0.1, 0.9])).tolist() == [0, 0]


# What is refused -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "popularity, message",
    [
        (ShiftingSkew(RANKS, 1.5), "popularity.share is 1.5, must be at least 0 and at most 1 of the"),
        (PowerLaw(RANKS, -1), "workload.popularity.alpha is -1, must be at least 0"),
        (PowerLaw([]), r"workload.popularity.ranks is \[\], must be a list"),
        (PowerLaw((*RANKS, 8)), "workload.adapters is 5, must be at least 6, one for each of"),
    ],
)
def test_arguments_out_of_range_are_refused_by_their_key(popularity, message):
    with pytest.raises(InputError, match=message):
        popularity.check("workload.popularity", 5)
