"""Waiting times that queueing theory knows for every request, out of degenerate configurations.

One server: every request asks for one token, so it is a prefill and nothing else, and a batch of one
takes them one by one; a prompt of n tokens is a service of n milliseconds. c servers: a batch of c
seats whose decode step takes a millisecond however many sit in it, and prefills that cost nothing; an
answer of n + 1 tokens is a service of n milliseconds.
"""

from collections.abc import Sequence
from heapq import heappop, heappush

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from simlora.core.adapter import Adapter
from simlora.core.request import Request
from simlora.engine.cluster.rate_limiter import RateLimiter
from simlora.engine.cluster.simulation import Simulation
from simlora.engine.scenario import ClusterConfig
from tests.engine.cases import COEFFICIENTS, Case, Row, apart, failing, family
from tests.examples import share

TOKEN_S = 1e-3
FREE = dict.fromkeys(COEFFICIENTS, 0.0) | {"adapter_load.bytes_per_s": 1.0}
ONE_SERVER = Case(
    capacity=10**9,
    max_num_seqs=1,
    max_num_batched_tokens=10**9,
    max_wait_tokens=0,
    reserve="full",
    coefficients=FREE | {"prefill.per_token_s": TOKEN_S},
)
SEATS = ONE_SERVER.but(max_num_seqs=4, coefficients=FREE | {"decode.intercept_s": TOKEN_S})


def exponential(rng: np.random.Generator, n: int) -> NDArray[np.int64]:
    """Service times in tokens: geometric with mean 1,000, exponential but for half a token."""
    return rng.geometric(1 / 1000, n)


def two_point(rng: np.random.Generator, n: int) -> NDArray[np.int64]:
    """One request in ten is nine times as long as the others: mean 1,000."""
    return np.where(rng.random(n) < 0.1, 5000, 5000 // 9)


def arrivals(rng: np.random.Generator, rate: float, n: int) -> NDArray[np.float64]:
    return np.cumsum(rng.exponential(1 / rate, n))


def prompts(arrival_s: Sequence[float], tokens: Sequence[int]) -> Case:
    columns = zip(arrival_s, tokens, strict=True)
    return ONE_SERVER.but(rows=tuple(Row(t, None, int(n), 1, 1) for t, n in columns))


def answers(arrival_s: Sequence[float], tokens: Sequence[int]) -> tuple[Row, ...]:
    """Answers of n + 1 tokens, a service of n milliseconds in a seat."""
    columns = zip(arrival_s, tokens, strict=True)
    return tuple(Row(t, None, 1, int(n) + 1, int(n) + 1) for t, n in columns)


def waits(case: Case) -> NDArray[np.float64]:
    return case.table().queue_s.to_numpy()


def constant(rng: np.random.Generator, n: int) -> NDArray[np.int64]:
    return np.full(n, 1000)


@pytest.mark.parametrize("services", [exponential, constant, two_point], ids=["M/M/1", "M/D/1", "M/G/1"])
def test_one_server_waits_as_lindley_says_for_every_single_request(services):
    """W[n+1] = max(W[n] + S[n] - A[n], 0): no statistics, so no tolerance but rounding."""
    rng = np.random.default_rng(1)
    arrival_s, tokens = arrivals(rng, 0.9, 1000), services(rng, 1000)
    expected = [0.0]
    for gap_s, service in zip(np.diff(arrival_s), tokens, strict=False):
        expected.append(max(expected[-1] + service * TOKEN_S - gap_s, 0.0))
    assert max(expected) > 5
    np.testing.assert_allclose(waits(prompts(arrival_s, tokens)), expected, rtol=0, atol=1e-7)


def test_c_seats_wait_as_kiefer_and_wolfowitz_say_for_every_single_request():
    """M/M/4: the first request takes the seat that is free first. Seats are taken at the end of a step, so a wait is
    longer by up to a step, and by no more: a system to which all come later by up to a step is later by as much.
    """
    servers, rng = 4, np.random.default_rng(1)
    arrival_s, tokens = arrivals(rng, 3.2, 5000), exponential(rng, 5000)
    free_s, expected = [0.0] * servers, []
    for at_s, service in zip(arrival_s, tokens, strict=True):
        begin_s = max(at_s, heappop(free_s))
        heappush(free_s, begin_s + service * TOKEN_S)
        expected.append(begin_s - at_s)
    assert max(expected) > 5
    longer_s = waits(SEATS.but(rows=answers(arrival_s, tokens), max_num_seqs=servers)) - expected
    assert (longer_s > -1e-6).all()
    assert (longer_s < TOKEN_S + 1e-6).all()


def test_requests_are_lost_that_find_the_cluster_full_and_no_others_and_those_are_served_at_once():
    servers, n, rng = 4, 2500, np.random.default_rng(1)
    arrival_s, tokens = arrivals(rng, 3.0, n), exponential(rng, n)
    case = SEATS.but(rows=answers(arrival_s, tokens), max_num_seqs=servers, max_outstanding=servers)
    table = case.table()
    lost = (table.status == "rejected").to_numpy()
    ends_s = np.where(lost, 0.0, table.finish_s)
    assert lost.tolist() == [(ends_s[:i] > at_s).sum() == servers for i, at_s in enumerate(arrival_s)]
    late_s = (table.latency_s - tokens * TOKEN_S)[~lost]
    assert late_s.between(-1e-9, TOKEN_S).all(), "a service begins when a step ends"
    reason = f"cluster.max_outstanding, {servers} requests, were there already"
    assert table.reason[lost].unique().tolist() == [reason]
    assert (table.replica[lost] == -1).all(), "the router was not asked where to send it"


@given(
    gaps_s=st.lists(st.sampled_from((0.0, 0.125, 0.3, 2.0)), min_size=1, max_size=60),
    burst=st.integers(1, 4),
    adapters=st.lists(st.sampled_from((None, 0, 1)), min_size=60, max_size=60),
)
def test_buckets_admit_what_their_tokens_allow_and_no_less(gaps_s, burst, adapters):
    limiter = RateLimiter(ClusterConfig(replicas=1, adapter_rps=4.0, adapter_burst=burst))
    made = {None: None} | {id: Adapter(id, f"a{id}", 8, 512, 32) for id in (0, 1)}
    tokens, filled_s, now_s = dict.fromkeys(made, float(burst)), dict.fromkeys(made, 0.0), 0.0
    for id, (gap_s, adapter) in enumerate(zip(gaps_s, adapters, strict=False)):
        now_s += gap_s
        tokens[adapter] = min(tokens[adapter] + 4.0 * (now_s - filled_s[adapter]), burst)
        filled_s[adapter] = now_s
        refused = limiter.refusal(Request(id, made[adapter], now_s, 1, 1), now_s)
        assert (refused == "") == (tokens[adapter] >= 1 - 1e-6)
        assert refused in (
            "",
            f"cluster.adapter_rps admits 4 requests/s of an adapter, {burst} of them at once",
        )
        tokens[adapter] -= not refused


AT_RATES = st.one_of(
    family(adapter_rps=(2.0,)),
    apart(adapter_rps=(2.0,)),
    failing().map(lambda case: case.but(adapter_rps=2.0)),
)


@given(AT_RATES)
@share(1 / 2)
def test_a_cluster_rejects_what_the_buckets_reject_and_the_rest_for_other_reasons(case):
    limiter, table = RateLimiter(case.scenario().cluster), case.table()
    for row, request in zip(case.rows, table.itertuples(), strict=True):
        if case.until_s is not None and row.arrival_s > case.until_s:
            break
        adapter = None if row.adapter is None else Adapter(row.adapter, "", 8, 512, 32)
        refused = limiter.refusal(Request(0, adapter, row.arrival_s, 1, 1), row.arrival_s)
        assert (request.reason == refused) if refused else "adapter_rps" not in request.reason


class Counting:
    """Integrates over time how many requests the router believes to be in the cluster."""

    def __init__(self, simulation: Simulation) -> None:
        self.request_seconds = self.since_s = 0.0
        self.outstanding = 0
        self.view = simulation.view
        simulation.dispatcher.on_assign += (self.changed,)
        simulation.dispatcher.on_end += (self.changed,)

    def changed(self, replica: int, request: Request) -> None:
        now_s = self.view.now_s
        self.request_seconds += self.outstanding * (now_s - self.since_s)
        self.since_s, self.outstanding = now_s, int(self.view.outstanding.sum())


def test_littles_law_holds_on_every_run():
    """L = λ W: the mean number in the cluster, as the router counts, and the mean latency of the table."""
    rng = np.random.default_rng(3)
    n = 500
    columns = (arrivals(rng, 8.0, n), rng.integers(0, 3, n), rng.integers(1, 60, n), rng.integers(1, 40, n))
    rows = tuple(Row(t, int(a), int(p), int(o), int(o) + 5) for t, a, p, o in zip(*columns, strict=True))
    simulation = Simulation(Case(rows=rows, capacity=250, replicas=2, reserve="paged").scenario())
    counted = Counting(simulation)
    table = simulation.run().requests()
    assert (table.status == "finished").all()
    makespan_s = table.finish_s.max()
    number, rate = counted.request_seconds / makespan_s, n / makespan_s
    assert number == pytest.approx(rate * table.latency_s.mean(), rel=1e-9)
    assert simulation.fleet.outstanding.sum() == 0
