"""StaticBatch on hand-made views: rounds of batches, one adapter each."""

from simlora.core.request import Request
from simlora.policies.scheduling.base import SchedulerOutput
from simlora.policies.scheduling.static_batch import StaticBatch
from tests.policies.hand import A, B, View, requests


def batches(scheduler: StaticBatch, waiting: tuple[Request, ...], seats: int = 1000) -> list[list[int]]:
    """Numbers of the requests of each batch, as one follows the other until no request waits."""
    out, left = [], list(waiting)
    while left:
        batch = scheduler.schedule(View(left, seats=seats)).prefill
        left = [request for request in left if request not in batch]
        out.append([request.id for request in batch])
    return out


def test_while_a_batch_runs_no_request_joins_or_is_tried():
    view = View(requests(A, A), running=1)
    assert StaticBatch().schedule(view) == SchedulerOutput()
    assert view.tried == ()


def test_waiting_requests_are_served_adapter_by_adapter_in_order_of_first_arrival():
    assert batches(StaticBatch(), requests(B, A, None, B, A)) == [[0, 3], [1, 4], [2]]


def test_a_group_larger_than_the_batch_takes_several_that_no_other_adapter_fills_up():
    assert batches(StaticBatch(), requests(A, B, A, A), seats=2) == [[0, 2], [3], [1]]


def test_a_request_that_arrives_during_a_round_waits_for_the_next_even_with_an_adapter_of_this_one():
    scheduler, first, late = StaticBatch(), requests(A, B), requests(B, A, start=2)
    assert scheduler.schedule(View(first)).prefill == first[:1]
    assert scheduler.schedule(View((first[1], *late))).prefill == first[1:], "without the late one of B"
    assert batches(scheduler, late) == [[2], [3]], "the next round starts with the first that it finds"


def test_a_loader_that_looks_ahead_sees_the_rest_of_the_round_and_then_the_queue():
    scheduler, first, late = StaticBatch(), requests(A, B, None, B), requests(A, start=4)
    scheduler.schedule(View(first))
    order = scheduler.order(View((*first[1:], *late)))
    assert [request.id for request in order] == [1, 3, 2, 4]
