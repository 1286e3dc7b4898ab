"""RequestTable: each request has one place, holds what belongs there, and gives it back on every way out."""

from __future__ import annotations

import pytest

from simlora.core.request import Request
from simlora.engine.cluster.simulation import Simulation
from simlora.engine.handoff import Handoff
from simlora.engine.parts.chunked_prefill import ChunkedPrefill
from simlora.engine.parts.handoff import handing_over
from simlora.engine.parts.pausing import Pausing
from simlora.engine.replica.replica import Replica
from simlora.engine.replica.request_table import RequestStatus, RequestTable
from simlora.policies.scheduling.base import Pause, Resume
from tests.engine.cases import Case, Row

NOW_S = 2.0


def simulation_of(**more: object) -> tuple[Simulation, list[Request]]:
    """A simulation that has not begun, and three requests with prompts of 4 tokens and outputs of 6."""
    case = Case(rows=tuple(Row(0.0, None, 4, 6, 6) for _ in range(3)), **more)  # type: ignore[arg-type]
    return Simulation(case.scenario()), [Request(i, None, 0.0, 4, 6) for i in range(3)]


def empty(**more: object) -> tuple[Replica, RequestTable, list[Request]]:
    """An empty replica, its table, and the requests."""
    simulation, requests = simulation_of(**more)
    replica = simulation.fleet.replicas[0]
    return replica, replica.table, requests


def admit(replica: Replica, request: Request, now_s: float = 0.0) -> None:
    """Admit a request from the queue, with the memory of its prompt."""
    table = replica.table
    table.enqueue(request)
    table.dequeue(request)
    replica.loader.admit((request,), table.batch.step, now_s)


def decode(replica: Replica, request: Request, now_s: float = NOW_S) -> None:
    """Admit a request and complete its prefill, so that it joins the batch."""
    admit(replica, request)
    assert not replica.table.prefilled(request, now_s)


def used(table: RequestTable) -> int:
    """Token slots that requests hold."""
    return table.kv.running_tokens(table.batch.step)


def pausing(replica: Replica) -> Pausing:
    """The part that pauses requests."""
    part = replica.part(Pausing)
    assert part is not None
    return part


def test_a_request_is_listed_once_wherever_it_is() -> None:
    replica, table, (one, two, three) = empty(scheduler="unmerged_only")
    decode(replica, one)
    table.enqueue(two)
    admit(replica, three)
    table.prefill = (three,)
    assert {request.id for request in table.requests()} == {0, 1, 2}
    assert len(table.requests()) == 3
    pausing(replica).pause(Pause(one))
    assert len(table.requests()) == 3


def test_a_request_from_another_replica_waits_since_it_came_and_no_longer() -> None:
    simulation, (one, two, _) = simulation_of(failures=((0, 99.0, None),))
    replica = simulation.fleet.replicas[0]
    table = replica.table
    table.enqueue(one)
    simulation.clock.run(until_s=3.0)
    handing_over(replica).receive(Handoff(two), source=-1)
    assert [table.waited_at(now_s) for now_s in (0.0, 2.9, 3.0)] == [1, 1, 2]
    table.dequeue(two)
    assert table.waited_at(3.0) == 1
    assert not table.came_s


def test_a_prefill_in_chunks_is_held_until_it_is_complete_and_may_have_to_start_again() -> None:
    replica, table, (one, two, _) = empty(scheduler="chunked_prefill")
    part = replica.part(ChunkedPrefill)
    assert part is not None
    for request in (one, two):
        admit(replica, request)
        assert request not in part.on_prefilled((request,), (3,))
    assert (list(table.growing()), table.held_count) == ([one, two], 2)
    assert one in part.on_prefilled((one,), (1,))
    assert (list(table.growing()), table.held_count) == ([two], 1)
    held = used(table)
    assert not table.requeue(two, NOW_S)
    assert (two.chunked_tokens, two.prefill_tokens, used(table)) == (0, 4, held // 2)


def test_a_paused_request_keeps_its_memory_and_tokens_and_joins_again() -> None:
    replica, table, (one, two, _) = empty(scheduler="unmerged_only")
    decode(replica, one)
    decode(replica, two)
    table.batch.step += 2
    held, generated = used(table), table.batch.generated(one)
    pausing(replica).pause(Pause(one))
    assert used(table) == held
    assert list(table.batch) == [two]
    pausing(replica).resume(Resume(one))
    assert used(table) == held
    assert table.batch.generated(one) == generated == 3


@pytest.mark.parametrize("preemption", ["recompute", "swap"])
def test_a_preempted_request_gives_everything_back_and_waits(preemption: str) -> None:
    replica, table, (one, *_) = empty(preemption=preemption, reserve="paged")
    decode(replica, one)
    table.batch.step += 2
    table.preempt(one, NOW_S)
    assert list(table.queue) == [one]
    assert (used(table), len(table.batch), one.preemptions, one.generated_tokens) == (0, 0, 1, 3)
    # The KV of its last token does not exist before its next step.
    assert one.host_tokens == (4 + 3 - 1 if preemption == "swap" else 0)


def test_a_request_that_leaves_for_another_replica_takes_the_time_of_its_last_token_along() -> None:
    replica, table, (one, two, _) = empty()
    decode(replica, one)
    table.requeue(one, NOW_S)
    table.dequeue(one)
    assert table.depart(one, 0) == (one, NOW_S, one.prefill_tokens)
    assert table.depart(two, 3) == (two, None, 3)


@pytest.mark.parametrize("way_out", ["preempt", "requeue", "stop"])
def test_the_decode_window_ends_with_every_way_out_of_the_batch(way_out: str) -> None:
    replica, table, (one, two, _) = empty(reserve="paged")
    decode(replica, one)
    decode(replica, two)
    table.window = replica.runner.decode(NOW_S, table.batch, 0, 0)
    getattr(table, way_out)(one, NOW_S)
    assert table.window is None


def test_the_last_held_request_is_preempted_first_and_a_paused_one_before_all_others() -> None:
    _, table, (one, two, three) = empty()
    assert table.last() is None
    table.set_status(one, RequestStatus.PAUSED)
    table.set_status(two, RequestStatus.LOADING_ADAPTER)
    table.set_status(three, RequestStatus.LOADING_ADAPTER)
    assert table.last() is one
    table.clear_status(one, RequestStatus.PAUSED)
    assert table.last() is three
    table.clear_status(three, RequestStatus.PAUSED)
    assert table.held_count == 2, "it has another status"
