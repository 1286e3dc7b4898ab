"""EarlyAbort on hand-made views: a target of 6 s and a margin of 0.5 s, so 5.5 s of patience.

Both moving averages start at 1. A look makes the first int(0.7 * arrivals + 0.3 * before), an admission
the second int(0.7 * admitted + 0.3 * before).
"""

from __future__ import annotations

from math import inf

import pytest

from simlora.core.errors import InputError
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


def served(count: int, admitted: int | None = None) -> EarlyAbort:
    """A scheduler that has found so many requests at its first look, and admitted them or some of them."""
    scheduler = EarlyAbort()
    scheduler.schedule(View(crowd(count), running=1, seats=count if admitted is None else admitted))
    return scheduler


def newest_first(scheduler: EarlyAbort, view: View) -> bool:
    """Whether all that wait are started from the end of the queue; else they are from its head."""
    prefill = scheduler.schedule(view).prefill
    assert prefill in (tuple(view.waiting), tuple(reversed(view.waiting)))
    return prefill != tuple(view.waiting)


# Giving up


@pytest.mark.parametrize("now_s, too_old", [(6.4999, False), (6.5, True), (6.5001, True)])
def test_a_request_is_aborted_from_the_target_less_the_margin_on(now_s: float, too_old: bool) -> None:
    (request,) = queue = crowd(1, arrival_s=1.0)
    decision = EarlyAbort().schedule(View(queue, now_s=now_s))
    assert aborted(decision) == (((request, REASON),) if too_old else ())
    assert len(decision.actions) == too_old
    assert decision.prefill == (() if too_old else queue)


def test_an_aborted_request_is_not_tried_and_the_others_start() -> None:
    old, fresh = crowd(1, arrival_s=1.0), crowd(2, start=1)
    view = View((*old, *fresh))
    decision = EarlyAbort().schedule(view)
    assert decision == SchedulerOutput(prefill=(fresh[1], fresh[0]), actions=(Abort(old[0], REASON),))
    assert view.tried == (fresh[1], fresh[0])


def test_a_request_that_was_preempted_after_its_first_token_is_never_aborted() -> None:
    (request,) = queue = crowd(1, arrival_s=1.0)
    request.first_token_s, request.generated_tokens = 2.0, 1
    assert EarlyAbort().schedule(View(queue, now_s=1000.0)) == SchedulerOutput(prefill=queue)
    decision = EarlyAbort().schedule(View(queue, now_s=1000.0, running=1, refuses=none_fits(queue)))
    assert decision == SchedulerOutput(steps=RETRY_STEPS, on_arrival=0, until_s=inf)


def test_the_decision_stands_until_the_first_refused_request_has_to_be_aborted() -> None:
    queue = (*crowd(1, arrival_s=5.0), *crowd(1, arrival_s=7.0, start=1))
    decision = EarlyAbort().schedule(View(queue, running=1, refuses=none_fits(queue)))
    assert decision.until_s == 5.0 + 5.5
    assert decision.on_arrival == 0


@pytest.mark.parametrize(
    "chosen, message",
    [
        ({"slo_s": 0}, "scheduler.slo_s is 0, must be greater than 0 seconds"),
        ({"margin_s": -1}, "scheduler.margin_s is -1, must be at least 0"),
        ({"slo_s": 2, "margin_s": 3}, "scheduler.margin_s is 3, must be at least 0 and at most 2 seconds"),
    ],
)
def test_a_target_or_a_margin_out_of_range_is_refused(chosen: dict[str, float], message: str) -> None:
    with pytest.raises(InputError, match=message):
        EarlyAbort(**chosen)


# Newest or oldest first


def test_at_first_one_arrival_is_as_much_as_one_admission_and_the_newest_goes_first() -> None:
    assert newest_first(EarlyAbort(), View(crowd(2), running=1))


def test_fewer_arrivals_than_admissions_and_the_oldest_go_first() -> None:
    """8 arrivals, 8 admissions: int(5.6 + 0.3) = 5 each. Then 2 more arrivals: int(1.4 + 1.5) = 2 < 5."""
    assert not newest_first(served(8), View(crowd(2), running=1))


def test_at_least_as_many_arrivals_as_admissions_and_the_newest_go_first() -> None:
    """6 more arrivals: int(4.2 + 1.5) = 5 >= 5."""
    assert newest_first(served(8), View(crowd(6), running=1))


@pytest.mark.parametrize("arrivals, newest", [(7, False), (8, True)])
def test_the_averages_are_cut_to_whole_numbers_and_not_rounded(arrivals: int, newest: bool) -> None:
    """After idling: int(4.9) = 4 < 5, and int(5.6) = 5 >= int(5.9) = 5."""
    idle = View(crowd(arrivals, arrival_s=9.0), now_s=9.0)
    assert newest_first(served(8), idle) is newest


def test_an_idle_replica_has_forgotten_the_arrivals_but_not_the_admissions() -> None:
    """Seven that come to a busy replica: int(4.9 + 1.5) = 6 >= 5; to an idle one 4, as above."""
    assert newest_first(served(8), View(crowd(7, arrival_s=9.0), now_s=9.0, running=1))
    assert not newest_first(served(8), View(crowd(7, arrival_s=9.0), now_s=9.0))


def test_a_batch_that_has_just_ended_is_not_idling() -> None:
    """The head of the queue has waited: an empty queue was not looked at."""
    assert newest_first(served(8), View(crowd(7, arrival_s=8.5), now_s=9.0))


def test_those_left_by_the_last_admission_are_not_counted_as_arrivals() -> None:
    """10 arrivals, 4 admissions: 7 and int(2.8 + 0.3) = 3. Then no arrivals: int(0.3 * 7) = 2 < 3."""
    assert not newest_first(served(10, admitted=4), View(crowd(6), running=1))
    assert newest_first(served(10, admitted=4), View(crowd(6 + 2), running=1)), "int(1.4 + 2.1) = 3 >= 3"


def test_requests_aborted_at_an_admission_are_not_left_by_it() -> None:
    """12 arrivals, 2 given up, 4 admissions, 6 left: 8 and 3. Then 1 more: int(0.7 + 2.4) = 3 >= 3."""
    scheduler = EarlyAbort()
    scheduler.schedule(View((*crowd(2, arrival_s=0.0), *crowd(10, start=2)), running=1, seats=4))
    assert newest_first(scheduler, View(crowd(6 + 1), running=1))


def test_a_loader_that_looks_ahead_sees_the_same_order() -> None:
    queue = crowd(3)
    assert tuple(EarlyAbort().order(View(queue))) == tuple(reversed(queue))
    scheduler = served(8)
    scheduler.schedule(View(running=1))
    assert tuple(scheduler.order(View(queue))) == queue


# When it looks


def test_the_queue_is_left_alone_after_a_prefill_as_with_fcfs() -> None:
    scheduler = EarlyAbort()
    waiting, empty = (View(queue, running=1, steps=4, max_wait_tokens=10) for queue in (crowd(1), ()))
    assert scheduler.schedule(waiting) == SchedulerOutput(steps=6)
    assert scheduler.schedule(empty) == SchedulerOutput(steps=6), "the average of arrivals is 1 and will sink"
    scheduler.schedule(View(running=1))
    assert scheduler.schedule(empty) == SchedulerOutput(on_arrival=6), "it is 0 for good"


def test_looks_that_would_still_move_the_average_are_taken_one_by_one() -> None:
    """10 refused: int(7 + 0.3) = 7, then int(7 + 2.1) = 9, then int(7 + 2.7) = 9 for good."""
    scheduler, queue = EarlyAbort(), crowd(10)
    view = View(queue, running=1, refuses=none_fits(queue))
    assert [scheduler.schedule(view).steps for _ in range(3)] == [1, RETRY_STEPS, RETRY_STEPS]


def test_an_empty_queue_is_looked_at_until_the_average_is_zero() -> None:
    """After 8 arrivals: int(0.3 * 5) = 1, then 0 for good."""
    scheduler = served(8)
    decisions = [scheduler.schedule(View(running=1)) for _ in range(2)]
    assert decisions == [SchedulerOutput(steps=1), SchedulerOutput(on_arrival=0)]
