"""RunningBatch: aggregates equal the sums over its members; what a prefill processes; steps in closed form."""

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from simlora.core.adapter import Adapter
from simlora.core.request import Request
from simlora.engine.replica.decode_window import DecodeWindow
from simlora.engine.replica.running_batch import RunningBatch, prefill_work, segments
from simlora.latency.kernels import LoraWork

ADAPTERS = (None, *(Adapter(i, f"a{i}", rank, 64 * rank, 4 * rank) for i, rank in enumerate((8, 8, 16, 64))))

JOIN = st.tuples(st.integers(0, 4), st.integers(1, 50), st.integers(1, 3), st.integers(1, 9))


@given(st.lists(st.one_of(JOIN, st.integers(1, 4), st.just("take")), max_size=40))
def test_the_aggregates_are_the_sums_over_the_members(steps):
    outputs: list[int] = []
    batch, members = RunningBatch(outputs), {}  # id -> [request, context, to come]
    for id, step in enumerate(steps):
        outputs.append(0)
        if isinstance(step, tuple):
            adapter, prompt, generated, to_come = step
            request = Request(id, ADAPTERS[adapter], 0.0, prompt, 99)
            outputs[id] = generated + to_come
            batch.join(request, generated)
            members[id] = [request, prompt + generated, to_come]
        elif step == "take" and members:
            request, _, _ = members.pop(max(members))
            batch.take(request)
        elif members and step != "take":
            ahead = min(step, batch.steps_to_finish())
            batch.step += ahead
            for member in members.values():
                member[1] += ahead
                member[2] -= ahead
            finished = [id for id, (_, _, to_come) in sorted(members.items()) if to_come == 0]
            assert [request.id for request in batch.finished()] == finished
            for gone in finished:
                del members[gone]
        check(batch, list(members.values()))


def check(batch: RunningBatch, members: list) -> None:
    assert len(batch) == len(members)
    assert {request.id for request in batch} == {request.id for request, _, _ in members}
    assert batch.context_tokens == sum(context for _, context, _ in members)
    for request, context, _ in members:
        assert batch.context(request) == context
        assert batch.generated(request) == context - request.prompt_tokens
    ranks = [request.rank for request, _, _ in members if request.rank]
    assert batch.work(3) == LoraWork(len(ranks), sum(ranks), max(ranks, default=0), 3)
    assert batch.work(3, segments(batch)).segments == segments(request for request, _, _ in members)
    if members:
        assert batch.steps_to_finish() == min(to_come for _, _, to_come in members)


def test_a_request_without_a_token_to_come_cannot_join():
    with pytest.raises(AssertionError, match="nothing to come"):
        RunningBatch([1]).join(Request(0, None, 0.0, 5, 1), 1)


EIGHT, EIGHT_TOO, SIXTEEN = ADAPTERS[1:4]


@pytest.mark.parametrize(
    "adapters, stretches",
    [
        ((), 0),
        ((None, None), 0),
        ((EIGHT, EIGHT, EIGHT), 1),
        ((EIGHT, SIXTEEN, EIGHT), 3),
        ((EIGHT, EIGHT_TOO), 2),
        ((EIGHT, None, EIGHT, None, SIXTEEN, SIXTEEN), 2),
    ],
)
def test_segments_are_stretches_of_equal_adapters_among_those_that_use_one(adapters, stretches):
    assert segments([Request(id, adapter, 0.0, 10, 9) for id, adapter in enumerate(adapters)]) == stretches


def test_a_prefill_processes_that_many_tokens_of_each_request():
    several = [Request(id, adapter, 0.0, 10, 9) for id, adapter in enumerate((EIGHT, None, SIXTEEN, EIGHT))]
    several[0].chunked_tokens = 10
    tokens, tokens_sq, work = prefill_work(several, (5, 100, 7, 1))
    assert work == LoraWork(13, 5 * 8 + 7 * 16 + 8, 16, 2)
    assert tokens == 113
    assert tokens_sq == (15**2 - 10**2) + 100**2 + 7**2 + 1, "a chunk also attends to the chunks before it"
    assert prefill_work(several, (5, 100, 7, 1), segments(several))[2].segments == 3


def test_padding_counts_as_context_and_not_as_generated():
    batch, request = RunningBatch([5]), Request(0, None, 0.0, 10, 9)
    request.padding_tokens = 6
    batch.join(request, 1)
    batch.step += 2
    assert (batch.context(request), batch.generated(request)) == (10 + 6 + 3, 3)


# Steps in closed form -------------------------------------------------------------------------


STARTS = st.floats(0, 1e5)
BASES = st.floats(1e-5, 10)
SLOPES = st.one_of(st.just(0.0), st.floats(1e-9, 1e-2))


@given(STARTS, BASES, SLOPES, st.integers(0, 300))
def test_k_steps_take_the_sum_of_their_lengths(start_s, base_s, slope_s, steps):
    window = DecodeWindow(start_s, base_s, slope_s)
    end_s = start_s + sum(base_s + i * slope_s for i in range(steps))
    assert window.end_s(steps) == pytest.approx(end_s, rel=1e-12)


@given(STARTS, BASES, SLOPES, st.floats(-1, 1e4))
def test_the_first_boundary_is_the_earliest_that_is_not_before_the_event(start_s, base_s, slope_s, later_s):
    window = DecodeWindow(start_s, base_s, slope_s)
    event_s = start_s + later_s
    steps = window.first_boundary(event_s)
    assert steps >= 1
    assert window.end_s(steps) >= event_s
    assert steps == 1 or window.end_s(steps - 1) < event_s


@given(STARTS, BASES, SLOPES, st.integers(1, 10_000))
@example(0.0, 1e-5, 0.0, 10_000)
def test_an_event_on_a_boundary_belongs_to_it(start_s, base_s, slope_s, steps):
    window = DecodeWindow(start_s, base_s, slope_s)
    assert window.end_s(window.first_boundary(window.end_s(steps))) == window.end_s(steps)


def test_steps_may_take_no_time():
    window = DecodeWindow(5.0, 0.0, 0.0)
    assert window.end_s(100) == 5.0
    assert window.first_boundary(5.0) == 1


def test_a_long_window_keeps_its_boundaries_exact():
    window = DecodeWindow(0.0, 2**-6, 2**-20)
    lengths = 2**-6 + np.arange(100_000) * 2.0**-20
    assert window.end_s(100_000) == lengths.sum()
