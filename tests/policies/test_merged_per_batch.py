"""MergedPerBatch on hand-made views: one adapter in the weights at a time."""

from simlora.policies.scheduling.base import SchedulerOutput
from simlora.policies.scheduling.merged_per_batch import MergedPerBatch
from simlora.policies.views import Refusal
from tests.policies.hand import RETRY_STEPS, A, B, C, View, requests


def serving_a(most_others: int = 30) -> MergedPerBatch:
    """A scheduler whose batch was started by a request of adapter A."""
    scheduler = MergedPerBatch(most_others)
    scheduler.schedule(View(requests(A)))
    return scheduler


def test_the_head_of_the_queue_picks_the_adapter_and_only_its_requests_start():
    first, _, _, fourth = queue = requests(B, A, None, B)
    assert MergedPerBatch().schedule(View(queue)) == SchedulerOutput(prefill=(first, fourth), merge=B)


def test_the_adapter_of_the_last_batch_is_taken_out_before_the_next_is_merged():
    queue = requests(B, A)
    decision = serving_a().schedule(View(queue, merged=A))
    assert decision == SchedulerOutput(prefill=queue[:1], unmerge=True, merge=B)


def test_even_the_same_adapter_is_merged_anew_for_the_next_batch():
    queue = requests(A, A)
    decision = serving_a().schedule(View(queue, merged=A))
    assert decision == SchedulerOutput(prefill=queue, unmerge=True, merge=A)


def test_for_the_base_model_the_adapter_is_only_taken_out():
    first, _, third = queue = requests(None, A, None)
    decision = serving_a().schedule(View(queue, merged=A))
    assert decision == SchedulerOutput(prefill=(first, third), unmerge=True, merge=None)
    assert MergedPerBatch().schedule(View(queue)) == SchedulerOutput(prefill=(first, third))


def test_while_the_batch_runs_requests_of_its_adapter_join_it_without_a_switch():
    _, joins, _, joins_too = queue = requests(B, A, C, A)
    view = View(queue, running=1, merged=A)
    assert serving_a().schedule(view) == SchedulerOutput(prefill=(joins, joins_too))


def test_no_request_joins_once_more_than_the_limit_of_others_waits_ahead():
    three_ahead, four_ahead = requests(B, None, C, A), requests(B, None, C, B, A)
    scheduler = serving_a(most_others=3)
    assert scheduler.schedule(View(three_ahead, running=1, merged=A)).prefill == three_ahead[-1:]
    decision = scheduler.schedule(View(four_ahead, running=1, merged=A))
    assert decision == SchedulerOutput(steps=RETRY_STEPS, on_arrival=0)


def test_those_behind_the_first_of_the_adapter_do_not_count_as_ahead():
    queue = requests(B, A, C, C, C, C, A)
    view = View(queue, running=1, merged=A)
    assert serving_a(most_others=1).schedule(view).prefill == (queue[1], queue[-1])


def test_admission_stops_at_the_first_of_the_adapter_that_does_not_fit():
    queue = requests(A, A, B, A)
    view = View(queue, refuses={queue[1]: Refusal.TOKENS})
    assert MergedPerBatch().schedule(view).prefill == queue[:1]
    assert view.tried == queue[:2]
