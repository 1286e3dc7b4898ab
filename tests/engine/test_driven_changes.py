"""What is asked of a driven run while it goes on: clients that leave, adapters that come, and faults."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import inf
from typing import Any

import numpy as np
import pandas as pd
import pytest

from simlora.core.errors import InputError
from simlora.core.request import Request
from simlora.engine.cluster.driven import DrivenSimulation, Submitted
from simlora.engine.cluster.simulation import Simulation
from simlora.engine.incidents import Failure, Straggler
from simlora.engine.scenario import Scenario
from tests.engine.by_hand import prefill_s, step_s
from tests.engine.cases import Case
from tests.engine.test_driven import CASE, ROWS, in_steps, submitted

TIMES = ["status", "replica", "admitted_s", "first_token_s", "finish_s"]


def with_cluster(scenario: Scenario, **changes: Any) -> Scenario:
    return replace(scenario, cluster=replace(scenario.cluster, **changes))


def assert_same(driven: DrivenSimulation, played: Scenario, columns: Sequence[str] | None = None) -> None:
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
def test_a_client_that_leaves_a_running_request_is_as_if_it_had_asked_for_less(changes: dict[str, object]):
    case = CASE.but(rows=ROWS, **changes)
    ends_s = case.table()
    middle = (ends_s.first_token_s + ends_s.finish_s).to_numpy() / 2
    driven = left(case, sorted(((id, float(middle[id])) for id in (1, 4, 5)), key=lambda each: each[1]))
    trace = driven.trace()
    assert_same(driven, replace(case.scenario(), trace=trace), TIMES)
    rows = driven.recorder.requests()
    assert (rows.status == "finished").all()
    assert (rows.output_tokens.to_numpy() < [row.output_tokens for row in ROWS]).sum() >= 2


def test_a_client_that_leaves_the_queue_is_aborted_at_once() -> None:
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


def test_a_client_that_leaves_while_the_prompt_is_processed_has_one_token() -> None:
    driven = DrivenSimulation(CASE.scenario())
    request = driven.submit(Submitted(4, 50))
    driven.advance(prefill_s(4) / 2)
    driven.cancel(request)
    rows = driven.close().requests()
    assert rows.finish_s[0] == rows.first_token_s[0] == prefill_s(4)


def test_an_adapter_that_comes_later_is_served_as_one_that_was_there() -> None:
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
    assert_same(fewer, scenario)


def test_an_adapter_cannot_come_where_adapters_were_divided() -> None:
    case = CASE.but(rows=ROWS, placement="rank_demand", replicas=2, router="routing_table")
    with pytest.raises(InputError, match="needs placement=replicate_all"):
        DrivenSimulation(case.scenario()).add_adapter("new", 1)


def test_faults_that_are_asked_for_are_as_those_that_were_listed() -> None:
    case = CASE.but(rows=ROWS, replicas=2)
    scenario = case.scenario()
    failure = Failure(host=0, at_s=0.21, until_s=0.9)
    slow = Straggler(replica=1, at_s=0.33, factor=3.0, until_s=0.7)
    driven = DrivenSimulation(with_cluster(scenario, faults_on_request=True))
    for at_s, row in submitted(case):
        driven.submit(row, at_s)
    for incident in (failure, slow):
        driven.advance(incident.at_s)
        driven.begin(incident)
    with pytest.raises(InputError, match="host 0 has failed already"):
        driven.begin(failure)
    assert_same(driven, with_cluster(scenario, failures=(failure,), stragglers=(slow,)))
    with pytest.raises(InputError, match="needs the cluster's faults_on_request"):
        DrivenSimulation(scenario).begin(failure)


def test_parts_for_faults_that_do_not_come_change_nothing() -> None:
    case = CASE.but(rows=ROWS, replicas=2)
    driven = DrivenSimulation(with_cluster(case.scenario(), faults_on_request=True))
    in_steps(driven, case)
    assert_same(driven, case.scenario())


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
