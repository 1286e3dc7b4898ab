"""AdapterClustering on hand-made views, with d = 2."""

import pytest

from simlora.policies.scheduling.adapter_clustering import AdapterClustering
from simlora.policies.scheduling.base import NEVER, SchedulerOutput
from simlora.policies.views import Refusal
from tests.policies.hand import RETRY_STEPS, A, B, C, View, requests

OTHER, OURS, BASE, OURS_TOO = QUEUE = requests(C, A, None, B)


def schedule(view: View) -> SchedulerOutput:
    return AdapterClustering(clusters=2).schedule(view)


def test_with_fewer_adapters_in_the_batch_it_is_first_come_first_served():
    assert schedule(View(QUEUE, running=5, in_use=(A,))) == SchedulerOutput(prefill=QUEUE)


def test_from_d_adapters_on_requests_of_those_go_first_and_then_the_others():
    decision = schedule(View(QUEUE, running=2, in_use=(A, B)))
    assert decision == SchedulerOutput(prefill=(OURS, OURS_TOO, OTHER, BASE))


@pytest.mark.parametrize("why", [Refusal.MEMORY, Refusal.REGION, Refusal.SEATS])
def test_after_one_of_its_own_was_refused_for_memory_or_a_seat_no_other_is_tried(why):
    view = View(QUEUE, running=2, in_use=(A, B), refuses={OURS_TOO: why})
    assert schedule(view) == SchedulerOutput(prefill=(OURS,))
    assert view.tried == (OURS, OURS_TOO)


def test_after_one_of_its_own_had_too_many_tokens_the_others_are_tried_in_order_of_arrival():
    view = View(QUEUE, running=2, in_use=(A, B), refuses={OURS: Refusal.TOKENS})
    assert schedule(view) == SchedulerOutput(prefill=(OTHER,))
    assert view.tried == (OURS, OTHER, OURS), "up to the first that does not fit, again"


def test_the_others_too_stop_at_the_first_that_does_not_fit():
    view = View(QUEUE, running=2, in_use=(A, B), refuses={OTHER: Refusal.TOKENS})
    assert schedule(view) == SchedulerOutput(prefill=(OURS, OURS_TOO))


def test_after_a_refusal_an_arrival_counts_only_where_it_may_go_before_others():
    all_of_them = dict.fromkeys(QUEUE, Refusal.MEMORY)
    clustered = View(QUEUE, running=2, in_use=(A, B), refuses=all_of_them)
    assert schedule(clustered) == SchedulerOutput(steps=RETRY_STEPS, on_arrival=0)
    plain = View(QUEUE, running=2, in_use=(A,), refuses=all_of_them)
    assert schedule(plain) == SchedulerOutput(steps=RETRY_STEPS, on_arrival=NEVER)


def test_a_loader_that_looks_ahead_sees_the_same_order():
    scheduler = AdapterClustering(clusters=2)
    order = scheduler.order(View(QUEUE, running=2, in_use=(A, B)))
    assert tuple(order) == (OURS, OURS_TOO, OTHER, BASE)
    assert tuple(scheduler.order(View(QUEUE, running=2, in_use=(A,)))) == QUEUE
