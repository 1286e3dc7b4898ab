"""EarlyAbort on hand-made views: a target of 6 s and a margin of 0.5 s, so 5.5 s of patience.

Both moving averages start at 1. A look makes the first int(0.7 * arrivals + 0.3 * before), an admission
the second int(0.7 * admitted + 0.3 * before).
"""

from math import inf

import pytest

from simlora.core.request import Request
from simlora.policies.scheduling.base import Abort, SchedulerOutput
from simlora.policies.scheduling.early_abort import EarlyAbort
from simlora.policies.views import Refusal
from tests.policies.hand import RETRY_STEPS, View, aborted

REASON = "too old to meet its first-token target"


def crowd(count: int, arrival_s: float = 8.0, start: int = 0) -> tuple[Request, ...]:
    """Requests that have all come at the same time."""
    return tuple(Request(id, None, arrival_s, 10, 10) for id in range(start, start + count))


def none_fits(waiting: tuple[Request, ...]) -> dict[Request, Refusal]:
    return dict.fromkeys(waiting, Refusal.MEMORY)


def served(found: int, admitted: int) -> EarlyAbort:
    """A scheduler that has found so many requests at its first look, and admitted so many of them."""
    scheduler = EarlyAbort()
    scheduler.schedule(View(crowd(found), running=1, seats=admitted))
    return scheduler


def newest_first(scheduler: EarlyAbort, view: View) -> bool:
    """Whether all that wait are started from the end of the queue; else they are from its head."""
    prefill = scheduler.schedule(view).prefill
    assert prefill in (tuple(view.waiting), tuple(reversed(view.waiting)))
    return prefill != tuple(view.waiting)


# Giving up


@pytest.mark.parametrize("now_s, too_old", [(6.4999, False), (6.5, True), (6.5001, True)])
def test_a_request_is_aborted_from_the_target_less_the_margin_on(now_s, too_old):
    (request,) = queue = crowd(1, arrival_s=1.0)
    decision = EarlyAbort().schedule(View(queue, now_s=now_s))
    assert aborted(decision) == (((request, REASON),) if too_old else ())
    assert len(decision.actions) == too_old
    assert decision.prefill == (() if too_old else queue)


def test_an_aborted_request_is_not_tried_and_the_others_start():
    old, fresh = crowd(1, arrival_s=1.0), crowd(2, start=1)
    view = View((*old, *fresh))
    decision = EarlyAbort().schedule(view)
    assert decision == SchedulerOutput(prefill=(fresh[1], fresh[0]), actions=(Abort(old[0], REASON),))
    assert view.tried == (fresh[1], fresh[0])


def test_a_request_that_was_preempted_after_its_first_token_is_never_aborted():
    (request,) = queue = crowd(1, arrival_s=1.0)
    request.first_token_s, request.generated_tokens = 2.0, 1
    assert EarlyAbort().schedule(View(queue, now_s=1000.0)) == SchedulerOutput(prefill=queue)
    decision = EarlyAbort().schedule(View(queue, now_s=1000.0, running=1, refuses=none_fits(queue)))
    assert decision == SchedulerOutput(steps=RETRY_STEPS, on_arrival=0, until_s=inf)


def test_the_decision_stands_until_the_first_refused_request_has_to_be_aborted():
    queue = (*crowd(1, arrival_s=5.0), *crowd(1, arrival_s=7.0, start=1))
    decision = EarlyAbort().schedule(View(queue, running=1, refuses=none_fits(queue)))
    assert decision.until_s == 5.0 + 5.5
    assert decision.on_arrival == 0


# Newest or oldest first

BUSY, IDLE = {"running": 1}, {"now_s": 9.0}


@pytest.mark.parametrize(
    "found, admitted, waiting, arrived_s, view, newest",
    [
        (0, 0, 2, 8.0, BUSY, True),  # at first one arrival is as much as one admission
        (8, 8, 2, 8.0, BUSY, False),  # 5 each, then int(1.4 + 1.5) = 2 < 5
        (8, 8, 6, 8.0, BUSY, True),  # 5 each, then int(4.2 + 1.5) = 5 >= 5
        (8, 8, 7, 9.0, BUSY, True),  # 5 each, then int(4.9 + 1.5) = 6 >= 5
        # an idle replica has forgotten the arrivals, not the admissions: int(4.9) = 4 < 5, cut and not rounded
        (8, 8, 7, 9.0, IDLE, False),
        (8, 8, 8, 9.0, IDLE, True),  # int(5.6) = 5 >= int(5.9) = 5
        # a batch that has just ended is not idling: the head of the queue has waited
        (8, 8, 7, 8.5, IDLE, True),
        # those left by the last admission are no arrivals: 7 and 3, then int(0.3 * 7) = 2 < 3
        (10, 4, 6, 8.0, BUSY, False),
        (10, 4, 6 + 2, 8.0, BUSY, True),  # 7 and 3, then int(1.4 + 2.1) = 3 >= 3
    ],
)
def test_the_newest_go_first_while_at_least_as_many_arrive_as_are_admitted(
    found, admitted, waiting, arrived_s, view, newest
):
    scheduler = served(found, admitted) if found else EarlyAbort()
    assert newest_first(scheduler, View(crowd(waiting, arrived_s), **view)) is newest


def test_requests_aborted_at_an_admission_are_not_left_by_it():
    """12 arrivals, 2 given up, 4 admissions, 6 left: 8 and 3. Then 1 more: int(0.7 + 2.4) = 3 >= 3."""
    scheduler = EarlyAbort()
    scheduler.schedule(View((*crowd(2, arrival_s=0.0), *crowd(10, start=2)), running=1, seats=4))
    assert newest_first(scheduler, View(crowd(6 + 1), running=1))


def test_a_loader_that_looks_ahead_sees_the_same_order():
    queue = crowd(3)
    assert tuple(EarlyAbort().order(View(queue))) == tuple(reversed(queue))
    scheduler = served(8, 8)
    scheduler.schedule(View(running=1))
    assert tuple(scheduler.order(View(queue))) == queue


# When it looks


def test_an_empty_queue_is_looked_at_until_the_average_of_arrivals_is_zero():
    scheduler = EarlyAbort()
    empty = View((), running=1, steps=4, max_wait_tokens=10)
    assert scheduler.schedule(empty) == SchedulerOutput(steps=6), "the average of arrivals is 1 and will sink"
    scheduler.schedule(View(running=1))
    assert scheduler.schedule(empty) == SchedulerOutput(on_arrival=6), "it is 0 for good"


def test_looks_that_would_still_move_the_average_are_taken_one_by_one():
    """10 refused: int(7 + 0.3) = 7, then int(7 + 2.1) = 9, then int(7 + 2.7) = 9 for good."""
    scheduler, queue = EarlyAbort(), crowd(10)
    view = View(queue, running=1, refuses=none_fits(queue))
    assert [scheduler.schedule(view).steps for _ in range(3)] == [1, RETRY_STEPS, RETRY_STEPS]
