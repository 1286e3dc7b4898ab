"""RequestTable: each request has one place.

What it holds there and gives back is in test_pausing.py, test_batches.py and tests/invariants.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simlora.core.adapter import Adapter
from simlora.core.request import Request
from simlora.engine.cluster.simulation import Simulation
from simlora.engine.handoff import Handoff
from simlora.engine.parts.handoff import handing_over
from simlora.engine.parts.pausing import Pausing
from simlora.engine.replica.replica import Replica
from simlora.engine.replica.request_queue import RequestQueue
from simlora.engine.replica.request_table import RequestStatus, RequestTable
from simlora.policies.scheduling.base import Pause
from tests.engine.cases import Case, Row

NOW_S = 2.0


def empty(**more: object) -> tuple[Simulation, Replica, RequestTable, list[Request]]:
    """A simulation that has not begun, its first replica, that one's table, and three requests."""
    simulation = Simulation(Case(rows=(Row(0.0, None, 4, 6, 6),) * 3).but(**more).scenario())
    replica = simulation.fleet.replicas[0]
    return simulation, replica, replica.table, [Request(i, None, 0.0, 4, 6) for i in range(3)]


def admit(replica: Replica, request: Request) -> None:
    """Admit a request from the queue, with the memory of its prompt."""
    table = replica.table
    table.enqueue(request)
    table.dequeue(request)
    replica.loader.admit((request,), table.batch.step, 0.0)


def decode(replica: Replica, request: Request) -> None:
    """Admit a request and complete its prefill, so that it joins the batch."""
    admit(replica, request)
    assert not replica.table.prefilled(request, NOW_S)


def test_a_request_is_listed_once_wherever_it_is():
    _, replica, table, (one, two, three) = empty(scheduler="unmerged_only")
    decode(replica, one)
    table.enqueue(two)
    admit(replica, three)
    table.prefill = (three,)
    assert {request.id for request in table.requests()} == {0, 1, 2}
    assert len(table.requests()) == 3
    part = replica.part(Pausing)
    part.pause(Pause(one))
    assert len(table.requests()) == 3


def test_a_request_from_another_replica_waits_since_it_came_and_no_longer():
    simulation, replica, table, (one, two, _) = empty(failures=((0, 99.0, None),))
    table.enqueue(one)
    simulation.clock.run(until_s=3.0)
    handing_over(replica).receive(Handoff(two), source=-1)
    assert [table.waited_at(now_s) for now_s in (0.0, 2.9, 3.0)] == [1, 1, 2]
    table.dequeue(two)
    assert table.waited_at(3.0) == 1
    assert not table.came_s


def test_a_request_that_leaves_for_another_replica_takes_the_time_of_its_last_token_along():
    _, replica, table, (one, two, _) = empty()
    decode(replica, one)
    table.requeue(one, NOW_S)
    table.dequeue(one)
    assert table.depart(one, 0) == (one, NOW_S, one.prefill_tokens)
    assert table.depart(two, 3) == (two, None, 3)


@pytest.mark.parametrize("way_out", ["preempt", "requeue", "stop"])
def test_the_decode_window_ends_with_every_way_out_of_the_batch(way_out):
    _, replica, table, (one, two, _) = empty(reserve="paged")
    decode(replica, one)
    decode(replica, two)
    table.window = replica.runner.decode(NOW_S, table.batch, 0, 0)
    getattr(table, way_out)(one, NOW_S)
    assert table.window is None


def test_the_last_held_request_is_preempted_first_and_a_paused_one_before_all_others():
    *_, table, (one, two, three) = empty()
    assert table.last() is None
    table.set_status(one, RequestStatus.PAUSED)
    table.set_status(two, RequestStatus.LOADING_ADAPTER)
    table.set_status(three, RequestStatus.LOADING_ADAPTER)
    assert table.last() is one
    table.clear_status(one, RequestStatus.PAUSED)
    assert table.last() is three
    table.clear_status(three, RequestStatus.PAUSED)
    assert table.held_count == 2, "it has another status"


# The queue ------------------------------------------------------------------------------------


def request(arrival_s: float, id: int, adapter: Adapter | None = None) -> Request:
    return Request(id, adapter, arrival_s, 1, 1)


ADAPTERS = (None, *(Adapter(id, f"a{id}", 8, 1, 1) for id in range(3)))


@given(
    st.lists(st.tuples(st.integers(0, 5), st.sampled_from(ADAPTERS)), min_size=1, max_size=40),
    st.sets(st.integers(0, 4)),
    st.data(),
)
def test_those_behind_a_request_can_be_had_by_adapter(arrivals, wanted, data):
    queue, model = RequestQueue(), []
    for id, (arrival_s, adapter) in enumerate(arrivals):
        model.append(request(float(arrival_s), id ^ 5, adapter))
        queue.add(model[-1])
        if data.draw(st.booleans()):
            queue.remove(model.pop(data.draw(st.integers(0, len(model) - 1))))
        model.sort(key=lambda r: (r.arrival_s, r.id))
        if model:
            place = data.draw(st.integers(0, len(model) - 1))
            behind = [r for r in model[place + 1 :] if r.adapter is None or r.adapter.id in wanted]
            assert list(queue.among(wanted, after=model[place])) == behind
            assert queue.place(model[place]) == place
        assert list(queue) == model
        assert list(reversed(queue)) == model[::-1]
        assert (len(queue), bool(queue)) == (len(model), bool(model))


def test_a_request_that_is_not_there_cannot_be_removed():
    queue = RequestQueue()
    queue.add(request(0.0, 0))
    queue.add(request(2.0, 2))
    with pytest.raises(AssertionError, match="request 1 is not in the queue"):
        queue.remove(request(1.0, 1))
