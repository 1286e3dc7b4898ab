"""Many adapters, each with Poisson arrivals of its own."""

import math
from dataclasses import replace

import numpy as np
import pytest

from simlora.workload.lengths import Uniform
from tests.workload.test_every_workload import WORKLOADS

PLAIN = WORKLOADS["per_adapter"]


def rates_rps(workload, seed):
    """Return the rates at which the adapters' requests come [adapters]."""
    trace = workload.build(seed)
    return np.bincount(trace.adapter, minlength=workload.adapters) / workload.duration_s


def test_every_adapter_has_one_of_the_rates_and_as_many_as_said_have_it():
    found = np.sort(rates_rps(PLAIN, 1))
    wanted = np.array([1, 1, 1, 1, 4, 4])
    assert np.all(np.abs(found - wanted) < 4 * np.sqrt(wanted / PLAIN.duration_s))


def test_which_adapter_has_which_rate_is_drawn_from_the_seed():
    fast = {tuple(np.flatnonzero(rates_rps(PLAIN, seed) > 2.5)) for seed in range(8)}
    assert len(fast) > 3
    assert all(len(adapters) == 2 for adapters in fast)


def test_the_arrivals_of_each_adapter_are_a_poisson_process():
    trace = replace(PLAIN, duration_s=5000).build(1)
    for adapter in range(6):
        gaps_s = np.diff(trace.arrival_s[trace.adapter == adapter])
        assert gaps_s.std() / gaps_s.mean() == pytest.approx(1, abs=4 * math.sqrt(2 / len(gaps_s)))
        later = np.corrcoef(gaps_s[1:], gaps_s[:-1])[0, 1]
        assert later == pytest.approx(0, abs=4 / math.sqrt(len(gaps_s)))


def test_without_counts_there_are_as_many_of_each_as_can_be():
    even = replace(PLAIN, adapters=7, rates_rps=[8, 3, 0.5], counts=None)
    found = np.sort(rates_rps(replace(even, duration_s=2000), 1))
    assert np.round(found, 0).tolist()[2:] == [3, 3, 8, 8, 8]
    assert (found[:2] < 1).all()
    quiet = replace(PLAIN, rates_rps=[1, 0])
    assert np.sum(rates_rps(quiet, 1) > 0) == 2, "an adapter of rate 0 never has a request"
    assert len(quiet.build(1).adapters) == 6


def test_an_answer_is_cut_where_the_context_ends():
    trace = replace(PLAIN, output_tokens=Uniform(4, 2000), context_tokens=1000).build(1)
    assert (trace.prompt_tokens + trace.output_tokens).max() == 1000
    assert np.array_equal(trace.max_output_tokens, trace.output_tokens)
    longer = replace(PLAIN, output_tokens=Uniform(4, 2000), context_tokens=None).build(1)
    assert (longer.prompt_tokens + longer.output_tokens).max() > 2000


def test_long_prompts_can_have_short_answers_with_every_length_as_often_as_before():
    apart = PLAIN.build(1)
    bound = replace(PLAIN, correlation=-0.5).build(1)
    assert np.array_equal(np.sort(bound.output_tokens), np.sort(apart.output_tokens))
    assert np.array_equal(bound.prompt_tokens, apart.prompt_tokens)
    # uniform margins: 6 / pi * asin(rho / 2) of the normal scores' rho
    for trace, expected in ((apart, 0), (bound, 6 / math.pi * math.asin(-0.25))):
        found = np.corrcoef(trace.prompt_tokens, trace.output_tokens)[0, 1]
        assert found == pytest.approx(expected, abs=4 / math.sqrt(len(trace)))
