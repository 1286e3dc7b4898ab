"""Requests that are taken out of the batch and put back: what it costs, what they keep, and which one is preempted."""

import pytest

from simlora.policies.migration.base import Move, Plan
from simlora.policies.views import ClusterView
from tests.engine.by_hand import chunks_s, kv_s, merge_s, prefill_s, step_s, steps_s
from tests.engine.cases import COEFFICIENTS, Case, Row
from tests.engine.moving import TO_THE_FIRST, Planned

A, B = 0, 1
PAUSED = (Row(0.0, A, 4, 2, 2), Row(0.0, B, 4, 2, 2), Row(0.0, A, 4, 5, 5))
"""The third runs with the first, is paused while the second runs, and then goes on."""
CASE = Case(
    rows=PAUSED, scheduler="merged_only", loader="cached", eviction="lru", max_wait_tokens=0, reserve="paged"
)
"""Adapters 0, 1 and 2 have ranks 1, 2 and 4. The kernel is mbgmv: merged, it has no work."""
TIGHT = CASE.but(block_size=1, watermark=0.0, capacity=22)
"""Blocks of one token: the paused one holds 6 slots beside its adapter, 4; the second needs 5 and 8, later 6."""
TOGETHER_S = merge_s(1) + prefill_s(4, 4)
"""When the first token of the first and of the third is there: once, at the end of the one prefill."""
FIRST_S = TOGETHER_S + step_s(5, 5)
SECOND_S = FIRST_S + merge_s(1) + merge_s(2) + prefill_s(4) + step_s(5)


def test_a_paused_request_goes_on_with_the_tokens_and_the_kv_that_it_has():
    """The pause is time between two of its tokens, and what was merged over time is in the journal."""
    recorder = CASE.run()
    table = recorder.requests()
    third_s = SECOND_S + merge_s(2) + merge_s(1) + steps_s(3, 6)
    assert table.finish_s.tolist() == pytest.approx([FIRST_S, SECOND_S, third_s], abs=1e-12)
    assert table.first_token_s[2] == TOGETHER_S
    assert table.preemptions.tolist() == [0, 0, 0]
    between_s = (table.finish_s - table.first_token_s).sum()
    assert recorder.token_gaps.mean() * (table.output_tokens - 1).sum() == pytest.approx(between_s)
    decided = recorder.journal.decided
    assert [(row.name, row.value) for row in decided] == [("merged", A), ("merged", B), ("merged", A)]
    assert [row.time_s for row in decided] == pytest.approx([0.0, FIRST_S, SECOND_S])


def test_while_a_request_is_paused_its_adapter_costs_the_others_nothing():
    """The Triton kernel counts the adapters of the batch: one, and not that of a request that is paused."""
    rows = (Row(0.0, A, 4, 2, 2), Row(0.0, A, 4, 4, 4), Row(2**-20, B, 4, 9, 9))
    crowded = CASE.but(rows=rows, scheduler="unmerged_only", kernel="vllm", max_num_seqs=2)
    assert crowded.table().finish_s[0] == crowded.but(rows=rows[:2]).table().finish_s[0]


@pytest.mark.parametrize("capacity, preemptions", [(23, 0), (22, 1)])
def test_kv_of_the_paused_stays_until_others_need_its_place(capacity, preemptions):
    recorder = TIGHT.but(capacity=capacity).run()
    table = recorder.requests()
    assert table.preemptions.tolist() == [0, 0, preemptions]
    assert recorder.preemptions == preemptions
    assert (table.status == "finished").all()


@pytest.mark.parametrize("preemption", ["recompute", "swap"])
def test_a_preempted_request_is_prefilled_anew_or_comes_back_from_the_host(preemption):
    """It has 4 + 2 tokens: all but the last one's KV on the host, or nothing."""
    table = TIGHT.but(preemption=preemption).table()
    swaps = preemption == "swap"
    out_s, again_s = (kv_s(5), kv_s(5) + chunks_s((5, 1))) if swaps else (0.0, prefill_s(6))
    second_s = SECOND_S + out_s
    third_s = second_s + merge_s(2) + merge_s(1) + again_s + steps_s(2, 7)
    assert table.finish_s.tolist() == pytest.approx([FIRST_S, second_s, third_s], abs=1e-12)
    assert table.first_token_s[2] == TOGETHER_S


def test_an_adapter_that_only_the_paused_use_makes_way_with_them_where_no_other_may_be_in_the_batch():
    table = CASE.but(max_loras=1).table()
    assert table.preemptions.tolist() == [0, 0, 1]
    assert (table.status == "finished").all()


def moved(case: Case, period_s: float):
    """Run a case in which the third request moves to replica 1; return the recorder and its context then."""
    contexts: list[int] = []

    def asked(view: ClusterView) -> Plan:
        found = [request for request in view.requests_of(0) if request.id == 2]
        contexts.extend(view.context_tokens(request, 0) for request in found)
        return Plan(tuple(Move(request, 0, 1) for request in found), "it is the third")

    recorder = case.but(replicas=2).run(migration=Planned(asked, period_s), router=TO_THE_FIRST)
    return recorder, contexts[-1]


def test_a_paused_request_can_move_and_loses_nothing():
    """It leaves when the prefill under way is over, and is prefilled with what it had said."""
    recorder, context = moved(CASE, FIRST_S + 2**-8)
    table = recorder.requests()
    assert context == 6
    assert table.migrations.tolist() == table.replica.tolist() == [0, 0, 1]
    assert table.first_token_s[2] == TOGETHER_S, "its first token was the first"
    leaves_s = FIRST_S + merge_s(1) + merge_s(2) + prefill_s(4)
    there_s = leaves_s + merge_s(1) + prefill_s(6) + steps_s(2, 7)
    assert table.finish_s[2] == pytest.approx(there_s, abs=1e-12)
    (move,) = recorder.journal.moved
    assert (move.time_s, move.decided_s) == pytest.approx((leaves_s, FIRST_S + 2**-8))
    assert move[2:] == (2, "adapter-0", 0, 1, 6, True, "it is the third")
    between_s = (table.finish_s - table.first_token_s).sum()
    assert recorder.token_gaps.mean() * (table.output_tokens - 1).sum() == pytest.approx(between_s)


def test_kv_on_one_host_is_of_no_use_to_another_replica():
    """It made way, its KV went to the host, and then it moved: there it is prefilled anew."""
    recorder, _ = moved(TIGHT.but(preemption="swap"), FIRST_S + 2**-4)
    row = recorder.requests().loc[2]
    assert (row.preemptions, row.migrations) == (1, 1)
    (move,) = recorder.journal.moved
    assert move.recomputed_tokens == 6
    assert row.finish_s == pytest.approx(move.time_s + merge_s(1) + prefill_s(6) + steps_s(2, 7))


@pytest.mark.parametrize("scheduler, latency_s", [("unmerged_only", 0.300), ("merged_only", 0.250)])
def test_dloras_worked_example(scheduler, latency_s):
    """Section 4.2: three iterations of 100 ms not merged, or a switch of 100 ms and three of 50 ms."""
    example = dict.fromkeys(COEFFICIENTS, 0.0) | {"merge.intercept_s": 0.1, "decode.intercept_s": 0.05}
    example |= {"kernels.mbgmv.decode.intercept_s": 0.05}
    example |= {"adapter_load.bytes_per_s": 1.0, "collectives.bytes_per_s": 1.0}
    table = CASE.but(rows=(Row(0.0, A, 4, 4, 4),), scheduler=scheduler, coefficients=example).table()
    assert table.latency_s[0] == pytest.approx(latency_s, abs=1e-12)
