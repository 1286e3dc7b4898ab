"""RequestQueue against a sorted list."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simlora.core.adapter import Adapter
from simlora.core.request import Request
from simlora.engine.replica.request_queue import RequestQueue


def request(arrival_s: float, id: int, adapter: Adapter | None = None) -> Request:
    return Request(id, adapter, arrival_s, 1, 1)


ADAPTERS = (None, *(Adapter(id, f"a{id}", 8, 1, 1) for id in range(3)))


@given(
    st.lists(st.one_of(st.integers(0, 5), st.just("head"), st.just("tail"), st.just("middle")), max_size=60)
)
def test_the_queue_is_a_list_sorted_by_arrival_and_id(steps: list[int | str]) -> None:
    queue, model = RequestQueue(), []
    for id, step in enumerate(steps):
        if isinstance(step, int):
            # Ids go up and down, as when a preempted request comes back among newer ones.
            model.append(request(float(step), id ^ 5))
            model.sort(key=lambda r: (r.arrival_s, r.id))
            queue.add(model[[r.id for r in model].index(id ^ 5)])
        elif model:
            place = {"head": 0, "tail": len(model) - 1, "middle": len(model) // 2}[step]
            queue.remove(model.pop(place))
        assert list(queue) == model
        assert list(reversed(queue)) == model[::-1]
        assert len(queue) == len(model)
        assert bool(queue) == bool(model)


@given(
    st.lists(st.tuples(st.integers(0, 5), st.sampled_from(ADAPTERS)), min_size=1, max_size=40),
    st.sets(st.integers(0, 4)),
    st.data(),
)
def test_those_behind_a_request_can_be_had_by_adapter(
    arrivals: list[tuple[int, Adapter | None]], wanted: set[int], data: st.DataObject
) -> None:
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


def test_a_request_that_is_not_there_cannot_be_removed() -> None:
    queue = RequestQueue()
    queue.add(request(0.0, 0))
    queue.add(request(2.0, 2))
    with pytest.raises(AssertionError, match="request 1 is not in the queue"):
        queue.remove(request(1.0, 1))
