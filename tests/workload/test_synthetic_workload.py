"""A workload put together from parts, each with a stream of its own."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simlora.core.errors import InputError
from simlora.core.trace import BASE_MODEL
from simlora.workload import arrivals
from simlora.workload.arrivals import Arrivals, Gamma, Poisson
from simlora.workload.lengths import Fixed, LogNormal, Uniform
from simlora.workload.popularity import Explicit, Power, Zipf
from simlora.workload.synthetic import Synthetic

PLAIN = Synthetic(Poisson(5.0), Power(1.0), Uniform(8, 512), Uniform(4, 64), adapters=10, ranks=[8, 16])
COLUMNS = ("arrival_s", "adapter", "prompt_tokens", "output_tokens")


def changed(one, other, seed=1):
    """Return the names of the columns that differ."""
    a, b = one.build(seed), other.build(seed)
    return {name for name in COLUMNS if not np.array_equal(getattr(a, name), getattr(b, name))}


def test_requests_arrive_before_the_end_and_at_the_rate():
    trace = replace(PLAIN, duration_s=2000).build(1)
    assert trace.arrival_s[0] > 0
    assert trace.arrival_s[-1] < 2000
    assert len(trace) == pytest.approx(10_000, abs=4 * 100)


def test_or_there_are_exactly_so_many():
    assert len(replace(PLAIN, duration_s=None, requests=123).build(1)) == 123


def test_the_same_seed_gives_the_same_trace_and_another_another():
    assert changed(PLAIN, PLAIN) == set()
    assert len(PLAIN.build(1)) != len(PLAIN.build(2)) or not np.array_equal(
        PLAIN.build(1).arrival_s, PLAIN.build(2).arrival_s
    )


@pytest.mark.parametrize(
    "part, column",
    [
        ({"popularity": Zipf(1.0)}, "adapter"),
        ({"prompt_tokens": LogNormal(5, 1, 1, 900)}, "prompt_tokens"),
        ({"output_tokens": Fixed(7)}, "output_tokens"),
    ],
)
def test_changing_one_part_leaves_the_others_as_they_were(part, column):
    assert changed(PLAIN, replace(PLAIN, **part)) == {column}


def test_changing_the_arrivals_leaves_what_arrives_as_it_was():
    counted = replace(PLAIN, duration_s=None, requests=400)
    assert changed(counted, replace(counted, arrivals=Gamma(1.0, 4.0))) == {"arrival_s"}


@given(seed=st.integers(0, 2**32), short_s=st.floats(10, 400), more_s=st.floats(0, 400))
def test_a_longer_run_begins_with_the_shorter_one(seed, short_s, more_s):
    short = replace(PLAIN, duration_s=short_s).build(seed)
    long = replace(PLAIN, duration_s=short_s + more_s).build(seed)
    for name in COLUMNS:
        assert np.array_equal(getattr(short, name), getattr(long, name)[: len(short)])


def test_every_adapter_is_there_whether_asked_for_or_not():
    trace = replace(PLAIN, popularity=Explicit([1] + [0] * 9)).build(1)
    assert set(trace.adapter.tolist()) == {0}
    assert [(spec.name, spec.rank) for spec in trace.adapters[:3]] == [
        ("adapter_0", 8),
        ("adapter_1", 16),
        ("adapter_2", 8),
    ]


def test_no_adapters_is_the_base_model():
    trace = replace(PLAIN, adapters=0).build(1)
    assert set(trace.adapter.tolist()) == {BASE_MODEL}
    assert changed(PLAIN, replace(PLAIN, adapters=0)) == {"adapter"}


def test_the_output_length_is_declared_exactly():
    trace = PLAIN.build(1)
    assert np.array_equal(trace.max_output_tokens, trace.output_tokens)


@dataclass(frozen=True)
class Pairs(Arrivals):
    """A user's own process: two at a time."""

    def gaps_s(self, rng, n):
        return np.resize([1.0, 0.0], n)


def test_a_process_of_one_s_own_needs_one_method():
    trace = replace(PLAIN, arrivals=Pairs(), duration_s=3.5).build(1)
    assert trace.arrival_s.tolist() == [1.0, 1.0, 2.0, 2.0, 3.0, 3.0]


def test_a_process_that_floods_is_stopped(monkeypatch):
    monkeypatch.setattr(arrivals, "REQUESTS_MAX", 3000)
    with pytest.raises(
        InputError, match=r"workload.arrivals brings more than 3,000 requests; lower one of them"
    ):
        replace(PLAIN, arrivals=Poisson(1e9)).build(1)


def test_a_run_in_which_nothing_arrives_is_refused():
    with pytest.raises(
        InputError, match=r"workload.duration_s is 0.001 seconds, in which no request arrives"
    ):
        replace(PLAIN, duration_s=0.001, arrivals=Poisson(0.001)).build(1)


@pytest.mark.parametrize(
    "setting, message",
    [
        (
            {"arrivals": Poisson(0)},
            "workload.arrivals.rate_rps is 0, must be greater than 0 requests per second",
        ),
        ({"popularity": Power(-1)}, "workload.popularity.alpha is -1"),
        ({"popularity": Explicit([1, 2])}, "workload.popularity.weights has 2 entries"),
        ({"prompt_tokens": Fixed(0)}, "workload.prompt_tokens.tokens is 0"),
        ({"output_tokens": Uniform(9, 3)}, "workload.output_tokens.hi is 3"),
        ({"adapters": -1}, "workload.adapters is -1"),
        ({"ranks": [0]}, r"workload.ranks\[0\] is 0"),
        ({"duration_s": 0}, "workload.duration_s is 0, must be greater than 0 seconds"),
        ({"duration_s": None, "requests": 0}, "workload.requests is 0"),
        ({"requests": 5}, "workload.duration_s and workload.requests: both given, must be one of the two"),
        ({"duration_s": None}, "workload.duration_s and workload.requests: neither given"),
    ],
)
def test_a_setting_out_of_range_is_refused_by_its_key(setting, message):
    with pytest.raises(InputError, match=message):
        replace(PLAIN, **setting)
