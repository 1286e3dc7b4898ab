"""ChunkedPrefill on hand-made views, with 16 tokens an iteration and prompts of ten."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simlora.core.adapter import Adapter
from simlora.core.request import Request
from simlora.policies.scheduling.base import NEVER, SchedulerOutput
from simlora.policies.scheduling.chunked_prefill import ChunkedPrefill
from simlora.policies.scheduling.prefill_first import PrefillFirst
from simlora.policies.views import Refusal
from tests.policies.hand import RETRY_STEPS, A, B, C, View, requests

FIRST, SECOND, THIRD = QUEUE = requests(A, B, A)


def schedule(view: View) -> SchedulerOutput:
    return ChunkedPrefill(max_batched_tokens=16).schedule(view)


def begun(id: int, done: int, prompt_tokens: int = 30) -> Request:
    """A request of which some tokens are processed."""
    request = Request(id, None, 0.0, prompt_tokens, 10)
    request.chunked_tokens = done
    return request


OLD, LATER = begun(7, done=18), begun(8, done=1)


@pytest.mark.parametrize(
    "view, expected",
    [
        # waiting requests share the budget in order of arrival
        (View(QUEUE), SchedulerOutput(prefill=(FIRST, SECOND), chunks=(10, 6))),
        # each running request takes a token of it and decodes in the same iteration
        (View(QUEUE, running=4), SchedulerOutput(prefill=(FIRST, SECOND), chunks=(10, 2), decode=True)),
        # a prefill that has begun goes on before others start
        (View(QUEUE, prefilling=(OLD,)), SchedulerOutput(prefill=(OLD, FIRST), chunks=(12, 4))),
        # prefills that have begun go on in order of admission as far as the budget reaches
        (
            View(QUEUE, running=2, prefilling=(OLD, LATER, begun(9, done=1))),
            SchedulerOutput(prefill=(OLD, LATER), chunks=(12, 2), decode=True),
        ),
        # with no token left the batch decodes until something changes
        (View(QUEUE, running=16), SchedulerOutput(on_arrival=0)),
        # so it does where more run than the budget has tokens
        (View(QUEUE, running=20), SchedulerOutput(on_arrival=0)),
        (View(running=3), SchedulerOutput(on_arrival=0)),  # and where none waits until one arrives
        # none starts at a boundary at which one was preempted
        (View(QUEUE, running=3, preempted=True), SchedulerOutput(steps=1, on_arrival=0)),
        # but what has begun goes on
        (View(QUEUE, prefilling=(OLD,), preempted=True), SchedulerOutput(prefill=(OLD,), chunks=(12,))),
    ],
)
def test_the_budget_goes_to_the_batch_then_to_prefills_that_have_begun_then_to_the_queue(view, expected):
    assert schedule(view) == expected
    started = [request for request in expected.prefill if request in QUEUE]
    assert view.tried == tuple(started), "for the next one no token is left"


def test_a_prefill_that_has_begun_is_looked_after_at_the_next_step():
    assert schedule(View(running=16, prefilling=(begun(7, done=18),))).steps == 1


def test_a_request_that_is_refused_for_too_many_adapters_is_skipped():
    view = View(QUEUE, refuses={SECOND: Refusal.ADAPTERS})
    assert schedule(view) == SchedulerOutput(prefill=(FIRST, THIRD), chunks=(10, 6), skipped=1)


def test_after_such_a_refusal_only_requests_that_need_no_further_adapter_are_tried():
    first, _, _, base, fifth = queue = requests(B, C, B, None, A)
    view = View(queue, in_use=(A,), running=1, refuses={first: Refusal.ADAPTERS})
    assert schedule(view) == SchedulerOutput(prefill=(base, fifth), chunks=(10, 5), decode=True, skipped=3)
    assert view.tried == (first, base, fifth)


def test_an_adapter_that_came_into_the_batch_in_this_trial_counts():
    first, second, third = queue = requests(B, A, B)
    view = View(queue, refuses={second: Refusal.ADAPTERS})
    assert schedule(view) == SchedulerOutput(prefill=(first, third), chunks=(10, 6), skipped=1)


def test_a_request_that_is_refused_for_anything_else_keeps_those_behind_it_waiting():
    for why in (Refusal.SEATS, Refusal.TOKENS, Refusal.MEMORY, Refusal.REGION):
        view = View(QUEUE, refuses={SECOND: why})
        assert schedule(view) == SchedulerOutput(prefill=(FIRST,), chunks=(10,))
        assert view.tried == (FIRST, SECOND)


def test_after_a_refusal_for_memory_an_arrival_changes_nothing():
    view = View(QUEUE, running=1, refuses={FIRST: Refusal.MEMORY})
    assert schedule(view) == SchedulerOutput(steps=RETRY_STEPS, on_arrival=NEVER)


def test_an_arrival_may_overtake_a_request_that_was_skipped():
    only = View(QUEUE[:1], running=1, refuses={FIRST: Refusal.ADAPTERS})
    assert schedule(only) == SchedulerOutput(on_arrival=0, skipped=1), "until a request leaves, or arrives"
    both = View(QUEUE, running=1, in_use=(B,), refuses={FIRST: Refusal.ADAPTERS, SECOND: Refusal.MEMORY})
    assert schedule(both) == SchedulerOutput(steps=RETRY_STEPS, on_arrival=0, skipped=1)


def test_the_queue_is_looked_at_as_far_as_tokens_or_memory_last_and_to_its_end_where_slots_do_not():
    first, *_ = queue = requests(A, B, C, A, B, C)
    none = View(queue, running=1, in_use=(), refuses={first: Refusal.ADAPTERS})
    assert schedule(none) == SchedulerOutput(on_arrival=0, skipped=6)
    tokens = View(queue, in_use=(B,), refuses={first: Refusal.ADAPTERS})
    assert schedule(tokens) == SchedulerOutput(prefill=(queue[1], queue[4]), chunks=(10, 6), skipped=3)
    memory = View(queue, running=1, in_use=(B,), refuses={first: Refusal.ADAPTERS, queue[4]: Refusal.MEMORY})
    assert schedule(memory) == SchedulerOutput(prefill=(queue[1],), chunks=(10,), decode=True, skipped=3)


def test_a_queue_that_was_skipped_is_not_tried_again_before_an_adapter_leaves_or_a_fitting_request_arrives():
    first, *_ = queue = requests(B, C, B, A)
    scheduler = ChunkedPrefill(max_batched_tokens=16)

    def looked_at(waiting: Sequence[Request], in_use: Sequence[Adapter], **more: bool) -> View:
        view = View(waiting, running=1, in_use=in_use, refuses={first: Refusal.ADAPTERS}, **more)
        decision = scheduler.schedule(view)
        started = len(decision.prefill)
        assert decision.skipped == (0 if more else len(waiting) - started)
        return view

    assert looked_at(queue[:1], (A,)).tried == (first,)
    assert looked_at(queue[:1], (A,)).tried == ()
    assert looked_at(queue[:3], (A,)).tried == (), "the new request needs a slot too"
    assert looked_at(queue[:3], ()).tried == (first,), "a slot is free"
    assert looked_at(queue[:3], ()).tried == ()
    assert looked_at(queue[:3], (), preempted=True).tried == ()
    assert looked_at(queue[:3], ()).tried == (first,), (
        "a request was preempted, and may be anywhere in the queue"
    )
    assert looked_at(queue, (A,)).tried == (first, queue[3]), "the new request needs none"
    base = requests(None, start=4)
    assert looked_at(queue[:3], (A,)).tried == (first,)
    assert looked_at(queue[:3], (A,)).tried == ()
    assert looked_at(queue[:3] + base, (A,)).tried == (first, *base), "the base model needs none either"


@given(
    budget=st.integers(1, 64),
    running=st.integers(0, 70),
    done=st.lists(st.integers(0, 29), max_size=5),
    prompts=st.lists(st.integers(1, 40), max_size=5),
)
def test_no_iteration_processes_more_than_the_budget_and_none_that_could_less(budget, running, done, prompts):
    prefilling = [begun(id, tokens) for id, tokens in enumerate(done)]
    waiting = [Request(id, None, 0.0, prompt, 10) for id, prompt in enumerate(prompts, 10)]
    view = View(waiting, running=running, prefilling=prefilling)
    decision = ChunkedPrefill(budget).schedule(view)
    to_do = sum(request.prefill_tokens for request in (*prefilling, *waiting))
    assert sum(decision.chunks) == min(max(budget - running, 0), to_do)
    assert len(decision.chunks) == len(decision.prefill)
    assert all(
        0 < chunk <= r.prefill_tokens for r, chunk in zip(decision.prefill, decision.chunks, strict=True)
    )
    assert decision.decode == bool(decision.prefill and running)


# PrefillFirst, with 25 tokens an iteration


def whole(view: View) -> SchedulerOutput:
    return PrefillFirst(max_batched_tokens=25).schedule(view)


def test_whole_prompts_start_as_far_as_the_budget_reaches_and_nothing_decodes_beside_them():
    for running in (0, 20):
        assert whole(View(QUEUE, running=running)) == SchedulerOutput(
            prefill=(FIRST, SECOND), chunks=(10, 10)
        )


def test_a_prompt_longer_than_the_budget_starts_alone():
    long, other = requests(A, B, prompt_tokens=40)
    assert whole(View((long, other))) == SchedulerOutput(prefill=(long,), chunks=(40,))


def test_the_batch_decodes_when_none_can_start():
    assert whole(View((), running=3)) == SchedulerOutput(on_arrival=0)


def test_a_request_without_a_slot_is_passed_over_by_whole_prompts_too():
    view = View(QUEUE, running=1, in_use=(A,), refuses={SECOND: Refusal.ADAPTERS})
    assert whole(view) == SchedulerOutput(prefill=(FIRST, THIRD), chunks=(10, 10), skipped=1)


def test_the_next_prompt_waits_whole_for_the_next_iteration():
    view = View(QUEUE)
    whole(view)
    assert view.tried == QUEUE, "the third fits into memory and not into the budget"
