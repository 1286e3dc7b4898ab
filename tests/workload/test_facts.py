"""What is said about a trace: rates, bursts, spread over adapters."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simlora.core.random import stream
from simlora.core.trace import BASE_MODEL, AdapterSpec, Trace
from simlora.workload.arrivals import Gamma
from simlora.workload.facts import counts, facts, rates, shares


def trace(arrival_s, adapter=None, adapters=4, session=None, prompts=None):
    n = len(arrival_s)
    return Trace(
        arrival_s=np.array(arrival_s, dtype=np.float64),
        adapter=np.array(adapter if adapter is not None else [0] * n, dtype=np.int64),
        prompt_tokens=np.array(prompts or [10] * n, dtype=np.int64),
        output_tokens=np.arange(1, n + 1),
        max_output_tokens=np.arange(1, n + 1),
        adapters=tuple(AdapterSpec(f"a{i}", 8) for i in range(adapters)),
        session=session,
    )


def test_rates_are_of_the_time_between_the_first_and_the_last():
    found = rates(np.array([1000.0, 1030.0, 1059.0, 1061.0, 1120.0]))
    assert found.span_s == 120
    assert found.mean_rps == 4 / 120
    assert found.peak_rps == 3 / 60  # 1000, 1030 and 1059
    assert found.peak_to_mean == pytest.approx(1.5)
    assert found.gap_cv == pytest.approx(np.std([30, 29, 2, 59]) / 30)


def test_what_a_trace_is_too_short_for_is_not_said():
    assert rates(np.array([5.0])).mean_rps is None
    assert rates(np.array([5.0, 5.0])).gap_cv is None
    short = rates(np.array([0.0, 1.0, 5.0]))
    assert (short.peak_rps, short.peak_to_mean, short.dispersion) == (None, None, {})
    assert list(rates(np.linspace(0, 100, 50)).dispersion) == [1.0, 10.0]


def test_counts_are_of_whole_windows():
    assert counts(np.array([7.0, 7.5, 8.0, 9.9, 10.2]), 1.0).tolist() == [2, 1, 1]


@pytest.mark.parametrize(("cv", "expected"), [(1.0, 1.0), (3.0, 9.0), (0.0, 0.0)])
def test_a_renewal_process_is_known_by_its_variation(cv, expected):
    """Over windows that are long for its gaps, variance over mean tends to the square of the gaps' variation."""
    arrival_s = np.cumsum(Gamma(10.0, cv).gaps_s(stream(1, "arrivals"), 400_000))
    found = rates(arrival_s)
    assert found.gap_cv == pytest.approx(cv, rel=0.02, abs=1e-9)
    assert found.dispersion[60.0] == pytest.approx(expected, rel=0.2, abs=0.02)


def test_lengths_are_quantiles_and_their_mean():
    found = facts(trace([0, 1, 2, 3, 4], prompts=[10, 20, 30, 40, 100]))
    assert found.prompts == (10, 20, 30, 40, 76, pytest.approx(97.6), 100, 40)
    assert found.outputs[2] == 3


def test_shares_of_adapters():
    even = shares(trace(range(8), [0, 1, 2, 3] * 2))
    assert (even.gini, even.top, even.used, even.base_model) == (0, 0.25, 4, 0)
    assert even.effective == pytest.approx(4)
    one = shares(trace(range(8), [2] * 8))
    assert (one.gini, one.top, one.top_tenth, one.used, one.effective) == (0.75, 1, 1, 1, 1)
    none = shares(trace(range(3), [BASE_MODEL] * 3))
    assert (none.used, none.base_model, none.effective) == (0, 3, 0)
    assert shares(trace(range(3), [BASE_MODEL, 0, 1])).top == 0.5


@given(st.lists(st.integers(0, 9), min_size=1, max_size=50))
def test_shares_keep_in_range(adapter):
    found = shares(trace(range(len(adapter)), adapter, adapters=10))
    assert 0 <= found.gini < 1
    assert 1 <= found.effective <= found.used + 1e-9
    assert found.top <= found.top_tenth + 1e-12 <= 1 + 1e-9


def test_reuse_is_told_with_the_adapters_and_with_one_for_all():
    found = facts(trace([0, 1, 2], [0, 1, 0], session=["s", "s", "s"], prompts=[40, 60, 90]))
    assert found.reuse.found_blocks == 2  # of 16 tokens: 40 + 1 - 1 tokens of the first turn, in the third
    assert found.reuse_of_one.found_blocks == 2 + 3
    assert (found.sessions.sessions, found.sessions.requests, found.sessions.longest) == (1, 3, 3)


def test_nothing_to_share_is_none():
    found = facts(trace([0, 1, 2], session=[None, None, None]))
    assert (found.sessions, found.reuse, found.reuse_of_one) == (None, None, None)
