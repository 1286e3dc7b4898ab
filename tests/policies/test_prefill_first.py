"""PrefillFirst on hand-made views, with 25 tokens an iteration and prompts of ten."""

from __future__ import annotations

from simlora.policies.scheduling.base import SchedulerOutput
from simlora.policies.scheduling.prefill_first import PrefillFirst
from simlora.policies.views import Refusal
from tests.policies.hand import A, B, View, requests

FIRST, SECOND, THIRD = QUEUE = requests(A, B, A)


def schedule(view: View) -> SchedulerOutput:
    return PrefillFirst(max_batched_tokens=25).schedule(view)


def test_whole_prompts_start_as_far_as_the_budget_reaches_and_nothing_decodes_beside_them() -> None:
    for running in (0, 20):
        assert schedule(View(QUEUE, running=running)) == SchedulerOutput(
            prefill=(FIRST, SECOND), chunks=(10, 10)
        )


def test_a_prompt_longer_than_the_budget_starts_alone() -> None:
    long, other = requests(A, B, prompt_tokens=40)
    assert schedule(View((long, other))) == SchedulerOutput(prefill=(long,), chunks=(40,))


def test_the_batch_decodes_when_none_can_start() -> None:
    assert schedule(View((), running=3)) == SchedulerOutput(on_arrival=0)


def test_a_request_without_a_slot_is_passed_over() -> None:
    view = View(QUEUE, running=1, in_use=(A,), refuses={SECOND: Refusal.ADAPTERS})
    assert schedule(view) == SchedulerOutput(prefill=(FIRST, THIRD), chunks=(10, 10), skipped=1)


def test_the_next_prompt_waits_whole_for_the_next_iteration() -> None:
    view = View(QUEUE)
    schedule(view)
    assert view.tried == QUEUE, "the third fits into memory and not into the budget"
