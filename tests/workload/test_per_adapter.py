"""Many adapters, each with Poisson arrivals of its own."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from simlora.core.errors import InputError
from simlora.workload.lengths import Fixed, Uniform
from simlora.workload.per_adapter import PerAdapter, correlated

PLAIN = PerAdapter(
    Uniform(8, 512),
    Uniform(4, 64),
    adapters=6,
    ranks=[8, 16],
    rates_rps=[4, 1],
    counts=[2, 4],
    duration_s=500,
)
COLUMNS = ("arrival_s", "adapter", "prompt_tokens", "output_tokens")


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


def test_requests_are_in_order_of_arrival_before_the_end():
    trace = PLAIN.build(1)
    assert np.all(np.diff(trace.arrival_s) >= 0)
    assert trace.arrival_s[-1] < 500


def test_ranks_are_given_in_turn():
    assert [spec.rank for spec in PLAIN.build(1).adapters] == [8, 16, 8, 16, 8, 16]


def test_without_counts_there_are_as_many_of_each_as_can_be():
    even = replace(PLAIN, adapters=7, rates_rps=[8, 3, 0.5], counts=None)
    found = np.sort(rates_rps(replace(even, duration_s=2000), 1))
    assert np.round(found, 0).tolist()[2:] == [3, 3, 8, 8, 8]
    assert (found[:2] < 1).all()


def test_an_adapter_of_rate_0_never_has_a_request():
    quiet = replace(PLAIN, rates_rps=[1, 0])
    assert np.sum(rates_rps(quiet, 1) > 0) == 2
    assert len(quiet.build(1).adapters) == 6


def test_the_same_seed_gives_the_same_trace_and_another_another():
    one, again, other = PLAIN.build(1), PLAIN.build(1), PLAIN.build(2)
    for name in COLUMNS:
        assert np.array_equal(getattr(one, name), getattr(again, name))
    assert not np.array_equal(one.arrival_s[:9], other.arrival_s[:9])


def test_a_longer_run_begins_with_the_shorter_one():
    short, long = PLAIN.build(1), replace(PLAIN, duration_s=900).build(1)
    for name in COLUMNS:
        assert np.array_equal(getattr(short, name), getattr(long, name)[: len(short)])


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
    n = len(apart)
    assert np.corrcoef(apart.prompt_tokens, apart.output_tokens)[0, 1] == pytest.approx(
        0, abs=4 / math.sqrt(n)
    )
    # uniform margins: 6 / pi * asin(rho / 2) of the normal scores' rho
    expected = 6 / math.pi * math.asin(-0.25)
    found = np.corrcoef(bound.prompt_tokens, bound.output_tokens)[0, 1]
    assert found == pytest.approx(expected, abs=4 / math.sqrt(n))


def test_lengths_that_are_all_alike_bind_nothing():
    rng = np.random.default_rng(1)
    drawn = rng.integers(0, 1000, 20_000)
    found = correlated(rng, np.full(20_000, 7), drawn, -0.9)
    half = found[:10_000].mean() / found[10_000:].mean()
    assert half == pytest.approx(1, abs=0.03)


@pytest.mark.parametrize(
    "setting, message",
    [
        ({"adapters": 0}, "workload.adapters is 0, must be a whole number of adapters, at least 1"),
        ({"ranks": [8, 0]}, r"workload.ranks\[1\] is 0"),
        ({"rates_rps": []}, "workload.rates_rps is .*, must be a list with at least one entry"),
        ({"rates_rps": [1, -1]}, r"workload.rates_rps\[1\] is -1, must be at least 0 requests per second"),
        ({"rates_rps": [0, 0]}, "workload.rates_rps is all 0, must have at least one number greater than 0"),
        (
            {"rates_rps": [0, 1], "counts": [6, 0]},
            "workload.rates_rps gives all of the 6 adapters a rate of 0",
        ),
        ({"rates_rps": [0, 1], "adapters": 1, "counts": None}, "gives all of the 1 adapters a rate of 0"),
        ({"counts": [6]}, "workload.counts has 1 entries, must have one for each of the 2 rates"),
        ({"counts": [3, 2]}, "workload.counts are 5 adapters together, must be the 6 of workload.adapters"),
        ({"counts": [6.5, -0.5]}, r"workload.counts\[0\] is 6.5, must be a whole number of adapters"),
        ({"counts": 6}, "workload.counts is 6, must be a list"),
        ({"duration_s": 0}, "workload.duration_s is 0, must be greater than 0 seconds"),
        ({"context_tokens": 1}, "workload.context_tokens is 1"),
        ({"correlation": -1}, "workload.correlation is -1, must be at least -0.99 and at most 0.99"),
        ({"prompt_tokens": Fixed(0)}, "workload.prompt_tokens.tokens is 0"),
        ({"output_tokens": Uniform(9, 3)}, "workload.output_tokens.hi is 3"),
        (
            {"prompt_tokens": 5},
            "workload.prompt_tokens is 5, must be chosen with workload/prompt_tokens=<name>",
        ),
    ],
)
def test_a_setting_out_of_range_is_refused_by_its_key(setting, message):
    with pytest.raises(InputError, match=message):
        replace(PLAIN, **setting)


@pytest.mark.parametrize(
    "setting, message",
    [
        (
            {"context_tokens": 100},
            "workload.context_tokens is 100, must be more than the longest prompt of workload.prompt_tokens, "
            "here 511 tokens",
        ),
        ({"duration_s": 1e-6}, "no request arrives; make it longer or raise the rate of workload.rates_rps"),
    ],
)
def test_what_cannot_be_built_is_said(setting, message):
    with pytest.raises(InputError, match=message):
        replace(PLAIN, **setting).build(1)
