"""Fcfs, Lcfs, and what the schedulers that look at the queue as often as they do have in common, on hand-made views."""

import pytest

from simlora.policies.scheduling.adapter_clustering import AdapterClustering
from simlora.policies.scheduling.base import NEVER, SchedulerOutput
from simlora.policies.scheduling.earliest_deadline import EarliestDeadline
from simlora.policies.scheduling.early_abort import EarlyAbort
from simlora.policies.scheduling.fcfs import Fcfs
from simlora.policies.scheduling.lcfs import Lcfs
from simlora.policies.scheduling.merged_per_batch import MergedPerBatch
from simlora.policies.views import Refusal
from tests.policies.hand import RETRY_STEPS, View, requests

OLD, MIDDLE, NEW = QUEUE = requests(None, None, None)
LIKE_FCFS = (Fcfs, Lcfs, AdapterClustering, EarlyAbort, EarliestDeadline, MergedPerBatch)


@pytest.mark.parametrize("scheduler", LIKE_FCFS)
def test_a_running_replica_leaves_the_queue_alone_for_ten_steps(scheduler):
    view = View((OLD,), running=1, steps=4, max_wait_tokens=10)
    assert scheduler().schedule(view) == SchedulerOutput(steps=6), "whatever arrives"
    assert view.tried == ()


@pytest.mark.parametrize("scheduler", [Fcfs, Lcfs])
def test_the_queue_is_looked_at_once_the_replica_is_idle_or_the_steps_are_over(scheduler):
    looks = SchedulerOutput(prefill=(OLD,))
    assert scheduler().schedule(View((OLD,), steps=3, max_wait_tokens=10)) == looks
    assert scheduler().schedule(View((OLD,), running=1, steps=10, max_wait_tokens=10)) == looks
    empty = View((), running=1, steps=4, max_wait_tokens=10)
    assert scheduler().schedule(empty) == SchedulerOutput(on_arrival=6)
    assert scheduler().schedule(View((), running=1, steps=10)) == SchedulerOutput(on_arrival=0)


@pytest.mark.parametrize("scheduler, first, refused", [(Fcfs, OLD, NEW), (Lcfs, NEW, OLD)])
def test_requests_start_in_order_until_the_first_that_does_not_fit(scheduler, first, refused):
    for does_not_fit, starts in ((refused, (first, MIDDLE)), (MIDDLE, (first,))):
        view = View(QUEUE, refuses={does_not_fit: Refusal.MEMORY})
        assert scheduler().schedule(view) == SchedulerOutput(prefill=starts)


@pytest.mark.parametrize("scheduler, on_arrival", [(Fcfs, NEVER), (Lcfs, 0)])
def test_after_a_refusal_only_a_newer_request_of_lcfs_may_fit(scheduler, on_arrival):
    view = View((OLD,), running=1, refuses={OLD: Refusal.MEMORY})
    assert scheduler().schedule(view) == SchedulerOutput(steps=RETRY_STEPS, on_arrival=on_arrival)
