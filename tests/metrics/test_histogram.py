"""TokenGaps says of runs what a list of every gap would say."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simlora.metrics.histogram import HIGHEST_S, LOWEST_S, TokenGaps

BIN_WIDTH = 2.0**-10

runs = st.tuples(
    st.floats(1e-5, 1e3),  # first gap
    st.floats(0.0, 1e-2),  # slope
    st.integers(1, 60),
    st.integers(1, 40),
)


def expand(some_runs):
    """Every gap of every sequence, in ascending order."""
    each = [np.repeat(first + np.arange(steps) * slope, weight) for first, slope, steps, weight in some_runs]
    return np.sort(np.concatenate(each))


def gaps_of(some_runs, *sizes):
    gaps = TokenGaps(*sizes)
    for run in some_runs:
        gaps.add_run(*run)
    return gaps


@given(st.lists(runs, min_size=1, max_size=12), st.floats(0, 1))
def test_it_agrees_with_the_list_of_every_gap(some_runs, q):
    gaps, every = gaps_of(some_runs), expand(some_runs)
    assert gaps.count == len(every)
    assert gaps.mean() == pytest.approx(every.mean(), rel=1e-12)
    exact = every[max(1, math.ceil(q * len(every))) - 1]
    assert gaps.quantile(q) == pytest.approx(exact, rel=BIN_WIDTH)


@given(st.lists(runs, min_size=1, max_size=8))
def test_a_run_is_its_gaps_added_one_by_one(some_runs):
    singly = TokenGaps()
    for first, slope, steps, weight in some_runs:
        for i in range(steps):
            singly.add(first + i * slope, weight)
    together = gaps_of(some_runs)
    assert together.count == singly.count
    assert together.mean() == pytest.approx(singly.mean(), rel=1e-12)
    assert [together.quantile(q) for q in (0, 0.5, 0.99, 1)] == [
        singly.quantile(q) for q in (0, 0.5, 0.99, 1)
    ]


@settings(max_examples=25)
@given(st.lists(runs, min_size=1, max_size=8), st.integers(1, 40), st.integers(1, 5))
def test_neither_buffer_nor_chunk_size_shows_in_the_result(some_runs, chunk, rows):
    whole = gaps_of(some_runs)
    expected = (whole.count, whole.quantile(0.1), whole.quantile(0.5), whole.quantile(0.9))
    pieces = gaps_of(some_runs, rows, chunk)
    assert (pieces.count, pieces.quantile(0.1), pieces.quantile(0.5), pieces.quantile(0.9)) == expected


def test_by_hand():
    gaps = TokenGaps()
    gaps.add_run(0.1, 0.1, 3, 2)  # 0.1 0.2 0.3, twice
    gaps.add(0.5)
    gaps.add(1.0, 3)
    assert gaps.count == 10
    assert gaps.mean() == pytest.approx((1.2 + 0.5 + 3.0) / 10)
    assert gaps.quantile(0.5) == pytest.approx(0.3, rel=BIN_WIDTH)
    assert gaps.quantile(0.7) == pytest.approx(0.5, rel=BIN_WIDTH)
    assert gaps.quantile(0.71) == pytest.approx(1.0, rel=BIN_WIDTH)
    assert gaps.quantile(1.0) == 1.0


def test_gaps_that_are_all_equal_have_an_exact_quantile():
    gaps = TokenGaps()
    gaps.add_run(0.03, 0.0, 1000, 7)
    assert gaps.quantile(0.99) == 0.03


def test_a_very_long_run_takes_bounded_memory():
    gaps = TokenGaps()
    gaps.add_run(0.01, 1e-9, 10_000_000, 5)
    assert gaps.count == 50_000_000
    assert gaps.quantile(0.5) == pytest.approx(0.015, rel=BIN_WIDTH)


def test_what_lies_outside_the_range_counts_in_the_outermost_bins():
    gaps = TokenGaps()
    for gap_s in (0.0, LOWEST_S / 2, 1.0, HIGHEST_S * 2):
        gaps.add(gap_s)
    assert gaps.count == 4
    assert gaps.quantile(0.25) <= LOWEST_S * (1 + BIN_WIDTH)
    assert gaps.quantile(1.0) >= HIGHEST_S
    assert gaps.mean() == pytest.approx((1.0 + 2 * HIGHEST_S) / 4)


def test_nothing_has_no_mean_and_no_quantile():
    assert math.isnan(TokenGaps().mean())
    assert math.isnan(TokenGaps().quantile(0.5))
    gaps = gaps_of([(0.1, 0.0, 0, 4), (0.1, 0.0, 4, 0)])
    assert gaps.count == 0, "of no steps or no sequences"


@pytest.mark.parametrize("q", [-0.01, 1.01, float("nan")])
def test_a_quantile_lies_between_0_and_1(q):
    with pytest.raises(ValueError, match=r"outside 0\.\.1"):
        TokenGaps().quantile(q)
