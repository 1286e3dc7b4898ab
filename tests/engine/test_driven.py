"""DrivenSimulation: requests submitted from outside, step by step, give the results of the run of their trace."""

import gc
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from math import inf, nan

import numpy as np
import pandas as pd
import pytest
from hypothesis import given

from simlora.core.errors import InputError
from simlora.core.request import Request
from simlora.engine.cluster import driven as driven_run
from simlora.engine.cluster.driven import DrivenSimulation
from simlora.engine.cluster.simulation import Simulation
from simlora.engine.cluster.submissions import Keep, Submitted
from simlora.engine.incidents import Failure, SlowLink, Straggler
from simlora.engine.scenario import Scenario
from tests.engine.by_hand import load_s, prefill_s, step_s, steps_s
from tests.engine.cases import Case, Row, cases
from tests.engine.observing import assert_identical
from tests.examples import share

CASE = Case(rows=(Row(0.0, None, 1, 1, 1),), ranks=(1, 2), reserve="paged", capacity=60, max_wait_tokens=0)
ROWS = tuple(Row(0.05 * i, i % 3 if i % 3 < 2 else None, 5 + i % 4, 6 + i % 5, 12) for i in range(12))
CHANGING: tuple[dict[str, object], ...] = (
    {"replicas": 3, "migrates_every_s": 0.25, "migration": "consolidate", "router": "most_idle"},
    {"replicas": 3, "autoscaler": "by_queue", "least_replicas": 1},
    {"replicas": 3, "autoscaler": "by_adapters", "least_replicas": 0},
    {"replicas": 2, "placement": "rank_demand", "router": "routing_table"},
    {"replicas": 2, "failures": ((0, 0.2, 0.9),)},
    {"loader": "asynchronous", "eviction": "lru"},
    {"scheduler": "credit", "loader": "cached"},
    {"scheduler": "chunked_prefill", "loader": "prefetching"},
)
"""Mechanisms that change the cluster while requests are served."""


def submitted(case: Case) -> list[tuple[float, Submitted]]:
    """The rows of a case, with their arrivals, as they are submitted."""
    trace = case.trace()
    sessions = trace.session or [None] * len(trace)
    hashes = trace.block_hashes or [()] * len(trace)
    columns = (trace.prompt_tokens, trace.output_tokens, trace.adapter, trace.max_output_tokens)
    rows = zip(*(column.tolist() for column in columns), sessions, hashes, strict=True)
    return [(at_s, Submitted(*row)) for at_s, row in zip(trace.arrival_s.tolist(), rows, strict=True)]


def in_steps(simulation: DrivenSimulation, case: Case) -> None:
    """Advance to each arrival, and submit it then."""
    for at_s, row in submitted(case):
        simulation.advance(at_s)
        simulation.submit(row)


def at_once(simulation: DrivenSimulation, case: Case) -> None:
    """Submit all requests before anything happens."""
    for at_s, row in submitted(case):
        simulation.submit(row, at_s)


@pytest.mark.parametrize("drive", [in_steps, at_once])
@given(case=cases())
@share(1 / 2)
def test_a_driven_run_equals_the_run_of_the_trace(drive, case):
    driven = DrivenSimulation(case.scenario())
    drive(driven, case)
    driven.close()
    assert_identical(driven, case.simulation())


@pytest.mark.parametrize("changes", CHANGING, ids=", ".join)
def test_so_it_does_where_the_cluster_changes_meanwhile(changes):
    """Of the driven scenario's trace, which has one request, only the adapters count."""
    case = CASE.but(rows=ROWS, **changes)
    driven = DrivenSimulation(case.but(rows=CASE.rows).scenario())
    in_steps(driven, case)
    driven.close()
    assert_identical(driven, case.simulation())


@given(case=cases())
@share(1 / 2)
def test_every_token_is_told_once_at_its_time(case):
    times: defaultdict[int, list[tuple[int, float]]] = defaultdict(list)

    def told(request: Request, token: int, now_s: float) -> None:
        times[request.id].append((token, now_s))

    driven = DrivenSimulation(case.scenario(), on_token=told)
    in_steps(driven, case)
    rows = driven.close().requests()
    played = case.simulation(fast_forward=False).recorder.requests()
    columns = ["status", "replica", "admitted_s", "first_token_s", "finish_s", "preemptions"]
    pd.testing.assert_frame_equal(rows[columns], played[columns], check_exact=True)
    for row in rows[rows.status == "finished"].itertuples():
        tokens = times[row.request_id]
        assert [token for token, _ in tokens] == list(range(1, row.output_tokens + 1))
        assert (tokens[0][1], tokens[-1][1]) == (row.first_token_s, row.finish_s)
        assert tokens == sorted(tokens, key=lambda each: each[1])


def test_what_has_ended_is_forgotten_and_nothing_else_changes(monkeypatch):
    """A request that is open keeps those behind it."""
    monkeypatch.setattr(driven_run, "FORGOTTEN_TOGETHER", 4)
    case = CASE.but(rows=ROWS, replicas=3, migrates_every_s=0.25, migration="consolidate", router="most_idle")
    told: dict[Keep, list[tuple[int, int, float]]] = {}
    for keep in Keep:
        tokens = told[keep] = []
        driven = DrivenSimulation(
            case.scenario(),
            lambda request, token, now_s, tokens=tokens: tokens.append((request.id, token, now_s)),
            keep,
        )
        requests = [driven.submit(row, at_s) for at_s, row in submitted(case)]
        driven.advance(60.0)
        late = [driven.submit(Submitted(5, 50)), *(driven.submit(Submitted(5, 2)) for _ in range(8))]
        driven.advance(60.1)
        assert [driven.arrival_s(each) for each in late] == [60.0] * 9
        if keep is Keep.OPEN:
            with pytest.raises(AssertionError, match="request 11 is forgotten"):
                driven.arrival_s(requests[-1])
            assert not driven.recorder.journal.moved
        else:
            assert [driven.arrival_s(each) for each in requests] == [row.arrival_s for row in ROWS]
            assert driven.recorder.journal.moved
        driven.cancel(requests[0])  # which ended long ago
        assert driven.close().all_ended()
    assert told[Keep.ALL] == told[Keep.ROWS] == told[Keep.OPEN]


def test_the_future_does_not_happen_before_it_is_advanced_to():
    told: list[float] = []
    driven = DrivenSimulation(CASE.scenario(), on_token=lambda request, token, now_s: told.append(now_s))
    driven.submit(Submitted(prompt_tokens=4, output_tokens=5))  # of the base model
    ends_s = prefill_s(4) + step_s(5)
    driven.advance(ends_s)
    assert told == [prefill_s(4)], "the second token comes at this very time, which is not over"
    driven.advance(60.0)
    assert told[1] == ends_s
    assert len(told) == 5
    assert driven.clock.now == 60.0


def test_an_arrival_in_the_past_and_a_time_that_is_not_finite_are_refused():
    driven = DrivenSimulation(CASE.scenario())
    driven.advance(2.0)
    for time_s, must in ((1.0, "at least 2.0 s"), (inf, "a finite number"), (nan, "a finite number")):
        with pytest.raises(InputError, match=f"arrival_s is {time_s}, must be {must}"):
            driven.submit(Submitted(4, 5), arrival_s=time_s)
        with pytest.raises(InputError, match=f"to_s is {time_s}, must be {must}"):
            driven.advance(time_s)
    driven.submit(Submitted(4, 5), arrival_s=3.0)
    with pytest.raises(InputError, match=r"arrival_s is 2\.0, must be at least 3\.0 s"):
        driven.submit(Submitted(4, 5))


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (Submitted(0, 5), "prompt_tokens is 0, must be a whole number of tokens, at least 1"),
        (Submitted(4, 0), "output_tokens is 0, must be a whole number of tokens, at least 1"),
        (Submitted(4, 5, max_output_tokens=3), "max_output_tokens is 3, must be .* at least 5"),
        (Submitted(4, 5, adapter=2), "adapter is 2, must be a whole number, at least -1 and at most 1"),
        (Submitted(4, 5, adapter=-2), "adapter is -2"),
        (Submitted(4, 5, block_hashes=(7,)), "block_hashes need a scenario whose trace has some"),
    ],
)
def test_a_request_that_cannot_be_is_refused(row, message):
    driven = DrivenSimulation(CASE.scenario())
    with pytest.raises(InputError, match=message):
        driven.submit(row)
    assert len(driven.close().requests()) == 0


def test_nothing_comes_after_the_end_and_a_driven_run_is_not_played():
    driven = DrivenSimulation(replace(CASE.scenario(), until_s=1.0))
    with pytest.raises(InputError, match="has no trace to play"):
        driven.run()
    with pytest.raises(InputError, match=r"to_s is 2\.0, must be at least 0\.0 and at most 1\.0 s"):
        driven.advance(2.0)
    driven.close()
    with pytest.raises(InputError, match="closed, must come before close"):
        driven.submit(Submitted(4, 5))
    with pytest.raises(InputError, match="closed twice"):
        driven.close()


# What is asked of it while it goes on: clients that leave, adapters that come, and faults ------

TIMES = ["status", "replica", "admitted_s", "first_token_s", "finish_s"]


def assert_requests(driven: DrivenSimulation, played: Scenario, columns: Sequence[str] | None = None) -> None:
    """The requests of a driven run are those of another."""
    ours, theirs = driven.close().requests(), Simulation(played).run().requests()
    chosen = list(columns or theirs.columns)
    pd.testing.assert_frame_equal(ours[chosen], theirs[chosen], check_exact=True)


def left(case: Case, gone: Sequence[tuple[int, float]]) -> DrivenSimulation:
    """Serve a case whose clients leave: (request, when), in order of time; every decode step has a boundary."""
    driven = DrivenSimulation(case.scenario(), on_token=lambda request, token, now_s: None)
    requests: list[Request] = []
    happens = [(at_s, row, -1) for at_s, row in submitted(case)]
    happens += [(at_s, Submitted(1, 1), id) for id, at_s in gone]
    for at_s, row, id in sorted(happens, key=lambda each: each[0]):
        driven.advance(at_s)
        if id < 0:
            requests.append(driven.submit(row))
        else:
            driven.cancel(requests[id])
    return driven


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"scheduler": "chunked_prefill"},
        {"loader": "asynchronous", "eviction": "lru"},
        {"reserve": "full"},
    ],
    ids=["slora", "chunked", "asynchronous", "full"],
)
def test_a_client_that_leaves_a_running_request_is_as_if_it_had_asked_for_less(changes):
    case = CASE.but(rows=ROWS, **changes)
    ends_s = case.table()
    middle = (ends_s.first_token_s + ends_s.finish_s).to_numpy() / 2
    driven = left(case, sorted(((id, float(middle[id])) for id in (1, 4, 5)), key=lambda each: each[1]))
    trace = driven.trace()
    assert_requests(driven, replace(case.scenario(), trace=trace), TIMES)
    rows = driven.recorder.requests()
    assert (rows.status == "finished").all()
    assert (rows.output_tokens.to_numpy() < [row.output_tokens for row in ROWS]).sum() >= 2


def test_a_client_that_leaves_the_queue_is_aborted_at_once():
    driven = DrivenSimulation(CASE.but(max_num_seqs=1).scenario())
    lost: list[tuple[int, str]] = []
    driven.recorder.on_lost = (lambda request, status, reason: lost.append((request.id, reason)),)
    first, second = driven.submit(Submitted(4, 50)), driven.submit(Submitted(4, 5))
    driven.advance(prefill_s(4) + step_s(5) / 2)
    driven.cancel(second)
    assert lost == [(1, "the client has gone")]
    driven.cancel(first)
    driven.cancel(first)
    driven.advance(60.0)
    driven.cancel(first)
    rows = driven.close().requests()
    assert rows.status.tolist() == ["finished", "aborted"]
    assert rows.output_tokens.tolist() == [2, 5]
    assert not driven.fleet.replicas[0].kv.tokens()


def test_what_waits_behind_a_client_that_leaves_a_replica_without_a_batch_starts_at_once():
    """The first request waits for its weights, the second for slots, and the third behind it."""
    case = CASE.but(reserve="full", loader="asynchronous", eviction="lru", capacity=100)
    driven = DrivenSimulation(case.scenario())
    requests = [driven.submit(Submitted(*asked)) for asked in ((10, 20, 0), (30, 40), (4, 5))]
    driven.advance(load_s(1) / 2)
    driven.cancel(requests[1])
    driven.cancel(requests[0])
    rows = driven.close().requests()
    assert rows.admitted_s[2] == load_s(1) / 2
    assert (rows.status[0], rows.output_tokens[0]) == ("finished", 1), "it is processed to its first token"


def test_what_waits_behind_a_client_that_leaves_starts_at_the_next_boundary():
    """The second request needs all of the pool's 60 slots, and the third what the first one leaves of them."""
    driven = DrivenSimulation(CASE.but(reserve="full").scenario())
    requests = [driven.submit(Submitted(*asked)) for asked in ((4, 40), (20, 40), (4, 5))]
    leaves_s = prefill_s(4) + steps_s(2, 5) + step_s(7) / 2
    driven.advance(leaves_s)
    driven.cancel(requests[1])
    rows = driven.close().requests()
    assert rows.status.tolist() == ["finished", "aborted", "finished"]
    assert rows.admitted_s[2] == prefill_s(4) + steps_s(3, 5)


def test_an_adapter_that_comes_later_is_served_as_one_that_was_there():
    case = CASE.but(rows=ROWS)
    scenario = case.scenario()
    first, second = scenario.trace.adapters
    trace = replace(scenario.trace, adapter=np.minimum(scenario.trace.adapter, 0), adapters=(first,))
    fewer = DrivenSimulation(replace(scenario, trace=trace))
    assert fewer.add_adapter(second.name, second.rank) == 1
    for name, rank, message in (
        (first.name, 8, "is known already, must have another name"),
        ("new", 0, "rank is 0, must be a whole number, at least 1"),
    ):
        with pytest.raises(InputError, match=message):
            fewer.add_adapter(name, rank)
    in_steps(fewer, case)
    assert_requests(fewer, scenario)


def test_an_adapter_that_comes_later_has_the_first_token_target_of_the_base_model():
    """One runs at a time; of those that wait the one that is due first is next: 4 s, 5 s or 6 s after it came."""
    case = CASE.but(scheduler="earliest_deadline", max_num_seqs=1)
    targets_s = np.array([4.0, 6.0, 5.0])  # of the two adapters, and last of the base model
    scenario = case.scenario()
    driven = DrivenSimulation(replace(scenario, ttft_targets_s=targets_s))
    late = driven.add_adapter("late", 8)
    for adapter in (-1, 1, late, 0):
        driven.submit(Submitted(4, 2, adapter=adapter))
    rows = driven.close().requests().sort_values("admitted_s")
    assert rows.adapter.tolist() == ["adapter-0", "", "late", "adapter-1"]


def test_an_adapter_cannot_come_where_adapters_were_divided():
    case = CASE.but(rows=ROWS, placement="rank_demand", replicas=2, router="routing_table")
    with pytest.raises(InputError, match="needs placement=replicate_all"):
        DrivenSimulation(case.scenario()).add_adapter("new", 1)


def faulty(case: Case, *incidents: Failure | Straggler | SlowLink) -> DrivenSimulation:
    """Submit a case to a cluster, and have these begin in it, each at its time."""
    driven = DrivenSimulation(case.but(faults_on_request=True).scenario())
    at_once(driven, case)
    for incident in incidents:
        driven.advance(incident.at_s)
        driven.begin(incident)
    return driven


def test_faults_that_are_asked_for_are_as_those_that_were_listed():
    case = CASE.but(rows=ROWS, replicas=2)
    failure = Failure(host=0, at_s=0.21, until_s=0.9)
    slow = Straggler(replica=1, at_s=0.33, factor=3.0, until_s=0.7)
    driven = faulty(case, failure, slow)
    with pytest.raises(InputError, match="host 0 has failed already"):
        driven.begin(failure)
    listed = case.but(failures=((0, 0.21, 0.9),), stragglers=((1, 0.33, 0.7, 3.0),))
    assert_requests(driven, listed.scenario())
    with pytest.raises(InputError, match="needs the cluster's faults_on_request"):
        DrivenSimulation(case.scenario()).begin(failure)


def listed(*incidents):
    """What a case says of incidents of one kind."""
    rows = [
        (each.of, each.at_s, each.until_s, *([] if isinstance(each, Failure) else [each.factor]))
        for each in incidents
    ]
    return {incidents[0].key.removeprefix("cluster."): tuple(rows)}


ENDED_EARLY = (
    (Failure(host=0, at_s=0.21, until_s=None), 0.52),
    (Failure(host=0, at_s=0.21, until_s=9.0), 0.52),
    (Straggler(replica=1, at_s=0.21, factor=3.0, until_s=None), 0.52),
    (SlowLink(host=0, at_s=0.0, factor=30.0, until_s=9.0), 0.12),
)


@pytest.mark.parametrize(("incident", "ends_s"), ENDED_EARLY)
def test_a_fault_that_is_ended_early_is_as_one_that_was_listed_with_that_end(
    incident: Failure | Straggler | SlowLink, ends_s: float
) -> None:
    case = CASE.but(rows=ROWS, replicas=2)
    kind = type(incident)
    assert not faulty(case).end(kind, incident.of), "none is under way"
    driven = faulty(case, incident)
    driven.advance(ends_s)
    assert driven.end(kind, incident.of)
    assert not driven.end(kind, incident.of)
    assert_requests(driven, case.but(**listed(replace(incident, until_s=ends_s))).scenario())
    if kind is Failure:
        assert [failed.until_s for failed in driven.recorder.journal.failed] == [ends_s]


def test_a_slowdown_takes_the_place_of_the_one_before_it_whose_end_is_none_of_it() -> None:
    case = CASE.but(rows=ROWS, replicas=2)
    first = Straggler(replica=0, at_s=0.1, factor=2.0, until_s=0.3)
    second = Straggler(replica=0, at_s=0.2, factor=5.0, until_s=0.6)
    in_turn = listed(replace(first, until_s=second.at_s), second)
    assert_requests(faulty(case, first, second), case.but(**in_turn).scenario())


def test_a_failed_host_that_was_not_expected_back_comes_back_once() -> None:
    """A listed failure of a host that has failed already has its own end; requests wait for the host until then."""
    case = CASE.but(rows=(Row(0.5, None, 1, 1, 1), Row(2.0, None, 1, 1, 1)))
    later = Failure(host=0, at_s=0.4, until_s=0.7)
    driven = faulty(case.but(**listed(later)), Failure(host=0, at_s=0.1))
    table = driven.close().requests()
    assert table.status.tolist() == ["finished", "finished"]
    assert table.admitted_s[0] == pytest.approx(0.7)
    assert [failed[:3] for failed in driven.recorder.journal.failed] == [(0.1, 0, 0.4), (0.4, 0, 0.7)]
    assert driven.fleet.returning == 0


def test_whether_weights_of_an_adapter_are_anywhere_is_known() -> None:
    row = Row(0.0, 0, 5, 3, 3)
    for max_cpu_loras, kept in ((None, False), (2, True)):
        case = CASE.but(rows=(row,), eviction="on_demand", max_cpu_loras=max_cpu_loras)
        driven = DrivenSimulation(case.scenario())
        assert not driven.has_weights(0)
        at_once(driven, case)
        driven.advance(1e-6)
        assert driven.has_weights(0), "they are being loaded"
        driven.close()
        assert driven.has_weights(0) is kept, (
            "evicted at once, and in host memory where that holds what was used"
        )
        assert not driven.has_weights(1)


def test_the_time_of_the_next_event_is_known() -> None:
    driven = DrivenSimulation(CASE.scenario())
    driven.advance(1.0)
    assert driven.next_s() == inf
    driven.submit(Submitted(4, 5))
    assert driven.next_s() == 1.0
    driven.submit(Submitted(4, 5), 5000.0)
    driven.advance(1.001)
    assert driven.next_s() == 1.0 + prefill_s(4)
    driven.advance(100.0)
    assert driven.next_s() == 5000.0


def test_a_step_leaves_the_collector_of_garbage_as_it_is_and_the_rest_of_a_run_does_without():
    """A step is short, and its user knows when to collect; in a long run the searches took a quarter of the time."""
    collects: list[bool] = []
    driven = DrivenSimulation(CASE.scenario(), lambda request, token, time_s: collects.append(gc.isenabled()))
    driven.submit(Submitted(5, 1, 0))
    driven.advance(100.0)
    driven.submit(Submitted(5, 1, 0))
    driven.close()
    assert (collects, gc.isenabled()) == ([True, False], True)
