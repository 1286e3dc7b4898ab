"""A workload put together from parts, each with a stream of its own."""

from dataclasses import dataclass, replace

import numpy as np
import pytest

from simlora.core.errors import InputError
from simlora.workload import arrivals
from simlora.workload.arrivals import Arrivals, Poisson
from tests.workload.test_every_workload import WORKLOADS

PLAIN = WORKLOADS["synthetic"]


def test_requests_arrive_before_the_end_and_at_the_rate_or_there_are_exactly_so_many():
    trace = replace(PLAIN, duration_s=2000).build(1)
    assert trace.arrival_s[0] > 0
    assert trace.arrival_s[-1] < 2000
    assert len(trace) == pytest.approx(10_000, abs=4 * 100)
    assert len(replace(PLAIN, duration_s=None, requests=123).build(1)) == 123


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
    with pytest.raises(InputError, match=r"workload.arrivals brings more than 3,000 requests; lower one"):
        replace(PLAIN, arrivals=Poisson(1e9)).build(1)
