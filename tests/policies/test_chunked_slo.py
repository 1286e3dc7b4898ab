"""ChunkedSlo on hand-made views: a step takes 1/32 s and a token 1/256 s, of 1/8 s; prompts of ten; 6 s of patience."""

from math import inf

from hypothesis import given
from hypothesis import strategies as st

from simlora.core.request import Request
from simlora.policies.scheduling.base import NEVER, Abort, SchedulerOutput
from simlora.policies.scheduling.budget import TimeBudget
from simlora.policies.scheduling.chunked_prefill import ChunkedPrefill
from simlora.policies.scheduling.chunked_slo import ChunkedSlo
from simlora.policies.scheduling.patience import REASON
from simlora.policies.views import Refusal
from tests.policies.hand import RETRY_STEPS, STEP_S, TOKEN_S, A, B, View, aborted, requests

PASS_S = 1 / 8
BESIDE = 24
"""Tokens that a pass has time for beside a batch; 32 without one."""


def schedule(view: View, **more: float | None) -> SchedulerOutput:
    known = {"max_batched_tokens": 1000, "slo_s": 6.5, "margin_s": 0.5, "pass_s": PASS_S}
    return ChunkedSlo(**{**known, **more}).schedule(view)


def crowd(count: int, arrival_s: float = 8.0, prompt_tokens: int = 10, start: int = 0) -> tuple[Request, ...]:
    return tuple(Request(id, None, arrival_s, prompt_tokens, 10) for id in range(start, start + count))


# In time


def test_an_iteration_prefills_what_it_has_time_for_beside_the_batch():
    queue = crowd(4)
    assert schedule(View(queue, running=3)) == SchedulerOutput(
        prefill=queue[:3], chunks=(10, 10, 4), decode=True, until_s=14.0
    )
    assert schedule(View(queue)) == SchedulerOutput(prefill=queue, chunks=(10, 10, 10, 2), until_s=14.0)


def test_tokens_are_bounded_too():
    queue = crowd(4)
    assert schedule(View(queue, running=3), max_batched_tokens=18).chunks == (10, 5)


def test_where_a_step_alone_takes_too_long_no_request_starts_until_one_leaves():
    queue = crowd(2)
    assert schedule(View(queue, running=1), pass_s=STEP_S) == SchedulerOutput(
        steps=NEVER, on_arrival=NEVER, until_s=14.0
    )


def test_a_prefill_that_has_begun_then_waits_and_is_looked_after_at_the_next_step():
    (begun,) = crowd(1)
    begun.chunked_tokens = 4
    decision = schedule(View(running=1, prefilling=(begun,)), pass_s=STEP_S)
    assert (decision.prefill, decision.steps) == ((), 1)


def test_where_no_request_runs_the_first_goes_on_however_long_it_takes():
    first, second = queue = crowd(2)
    assert schedule(View(queue), pass_s=TOKEN_S / 2).prefill == (first,)
    assert schedule(View(queue), pass_s=TOKEN_S / 2).chunks == (10,)
    assert schedule(View((second,), prefilling=(first,)), pass_s=TOKEN_S / 2).prefill == (first,)


def test_without_a_target_it_is_a_number_of_tokens():
    queue = crowd(4)
    for view in (View(queue), View(queue, running=4), View(queue, running=16)):
        ours = schedule(view, max_batched_tokens=16, slo_s=None, pass_s=None)
        assert ours == ChunkedPrefill(max_batched_tokens=16).schedule(view)


@given(
    prompts=st.lists(st.integers(1, 60), max_size=6),
    running=st.integers(0, 3),
    bend=st.floats(0.0, 0.01),
    pass_s=st.floats(STEP_S, 1.0),
)
def test_no_pass_takes_longer_and_none_has_time_for_another_token_where_time_is_linear(
    prompts, running, bend, pass_s
):
    view = View(running=running)
    linear = view.pass_s
    # Attention's squares: the last tokens of a prefill take longest.
    view.pass_s = lambda requests, chunks: linear(requests, chunks) + bend * sum(c * c for c in chunks)
    budget = TimeBudget(view, 100, pass_s)
    queue = [Request(id, None, 0.0, tokens, 1) for id, tokens in enumerate(prompts)]
    chunks = [budget.take(request) for request in queue]
    taken = [chunk for chunk in chunks if chunk]
    assert chunks[: len(taken)] == taken, "after a request that gets nothing no other gets anything"
    assert all(chunk == request.prompt_tokens for chunk, request in zip(taken[:-1], queue, strict=False))
    assert sum(taken) <= 100
    forced = not running and len(taken) == 1
    assert view.pass_s(queue, taken) <= pass_s * (1 + 1e-9) or forced
    if not bend and taken and taken[-1] < queue[len(taken) - 1].prompt_tokens and sum(taken) < 100:
        assert view.pass_s(queue, (*taken[:-1], taken[-1] + 2)) > pass_s


# Not too late


def test_a_request_that_is_too_old_is_aborted_and_the_others_start():
    old, fresh = crowd(1, arrival_s=3.0), crowd(2, start=1)
    view = View((*old, *fresh))
    decision = schedule(view)
    assert decision == SchedulerOutput(
        prefill=fresh, chunks=(10, 10), actions=(Abort(old[0], REASON),), until_s=14.0
    )
    assert aborted(decision) == ((old[0], REASON),), "actions of two kinds may be equal as tuples"
    assert view.tried == fresh


def test_the_next_look_is_when_the_next_will_be_too_old():
    first, *_ = queue = (*crowd(1, arrival_s=5.0), *crowd(1, start=1))
    decision = schedule(View(queue, running=1, refuses={first: Refusal.MEMORY}))
    assert decision == SchedulerOutput(steps=RETRY_STEPS, on_arrival=NEVER, until_s=11.0)


def test_requests_with_a_first_token_or_a_chunk_are_never_aborted():
    spoke, begun = crowd(2, arrival_s=0.0)
    spoke.first_token_s, spoke.generated_tokens = 1.0, 1
    decision = schedule(View((spoke,), prefilling=(begun,), now_s=100.0))
    assert decision == SchedulerOutput(prefill=(begun, spoke), chunks=(10, 11), until_s=inf)


def test_a_request_that_is_aborted_does_not_count_as_skipped():
    old = crowd(1, arrival_s=0.0, start=7)
    first, _, last = fresh = requests(B, B, A, start=8)
    view = View((*old, *fresh), running=1, in_use=(A,), refuses={first: Refusal.ADAPTERS})
    decision = schedule(view, slo_s=3.0)
    assert aborted(decision) == ((old[0], REASON),)
    assert (decision.prefill, decision.skipped) == ((last,), 2)
