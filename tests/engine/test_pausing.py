"""Requests that are taken out of the batch and put back: what it costs, what they keep, and which one is preempted."""

from __future__ import annotations

from dataclasses import replace

import pytest

from simlora.core.request import Request
from simlora.engine.cluster.simulation import Simulation
from simlora.metrics.recorder import Recorder
from simlora.policies.migration.base import Migration, Move, Plan
from simlora.policies.routing.base import Router
from simlora.policies.views import ClusterView
from tests.engine.by_hand import chunks_s, load_s, merge_s, prefill_s, step_s, steps_s
from tests.engine.cases import COEFFICIENTS, Case, Row

CASE = Case(
    rows=(), scheduler="merged_only", loader="cached", eviction="lru", max_wait_tokens=0, reserve="paged"
)
"""Adapters 0, 1 and 2 have ranks 1, 2 and 4. The kernel is mbgmv: merged, it has no work."""
BOTH = pytest.mark.parametrize("fast_forward", [True, False])
A, B = 0, 1
PAUSED = (Row(0.0, A, 4, 2, 2), Row(0.0, B, 4, 2, 2), Row(0.0, A, 4, 5, 5))
"""The third runs with the first, is paused while the second runs, and then goes on."""
FIRST_S = merge_s(1) + prefill_s(4, 4) + step_s(5, 5)
SECOND_S = FIRST_S + merge_s(1) + merge_s(2) + prefill_s(4) + step_s(5)


def run(*rows: Row, fast_forward: bool = True, **changes: object) -> Recorder:
    return CASE.but(rows=rows, **changes).run(fast_forward=fast_forward)


@BOTH
def test_a_paused_request_goes_on_with_the_tokens_and_the_kv_that_it_has(fast_forward: bool) -> None:
    table = run(*PAUSED, fast_forward=fast_forward).requests()
    third_s = SECOND_S + merge_s(2) + merge_s(1) + steps_s(3, 6)
    assert table.finish_s.tolist() == pytest.approx([FIRST_S, SECOND_S, third_s], abs=1e-12)
    assert table.first_token_s[2] == merge_s(1) + prefill_s(4, 4), "once, at the end of the one prefill"
    assert table.preemptions.tolist() == [0, 0, 0]


@BOTH
def test_the_pause_is_time_between_two_of_its_tokens(fast_forward: bool) -> None:
    recorder = run(*PAUSED, fast_forward=fast_forward)
    table = recorder.requests()
    between_s = (table.finish_s - table.first_token_s).sum()
    assert recorder.token_gaps.mean() * (table.output_tokens - 1).sum() == pytest.approx(between_s)


@BOTH
def test_what_was_merged_over_time_is_in_the_journal(fast_forward: bool) -> None:
    decided = run(*PAUSED, fast_forward=fast_forward).journal.decided
    assert [(row.name, row.value) for row in decided] == [("merged", A), ("merged", B), ("merged", A)]
    assert [row.time_s for row in decided] == pytest.approx([0.0, FIRST_S, SECOND_S])


@BOTH
def test_while_a_request_is_paused_its_adapter_costs_the_others_nothing(fast_forward: bool) -> None:
    """The Triton kernel counts the adapters of the batch: one, and not that of a request that is paused."""
    rows = (Row(0.0, A, 4, 2, 2), Row(0.0, A, 4, 4, 4), Row(2**-20, B, 4, 9, 9))
    case = CASE.but(rows=rows, scheduler="unmerged_only", kernel="vllm", max_num_seqs=2)
    alone = case.but(rows=(*rows[:1], rows[1]))
    crowded = case.run(fast_forward=fast_forward).requests()
    assert crowded.finish_s[0] == alone.run(fast_forward=fast_forward).requests().finish_s[0]


def test_kv_of_the_paused_stays_until_others_need_its_place() -> None:
    """Blocks of one token: the paused one holds 6 slots beside its adapter, 4; the second needs 5 and 8, later 6."""
    for capacity, preemptions in ((23, 0), (22, 1)):
        recorder = run(*PAUSED, block_size=1, watermark=0.0, capacity=capacity)
        table = recorder.requests()
        assert table.preemptions.tolist() == [0, 0, preemptions]
        assert recorder.preemptions == preemptions
        assert (table.status == "finished").all()


@BOTH
@pytest.mark.parametrize("preemption", ["recompute", "swap"])
def test_a_preempted_request_is_prefilled_anew_or_comes_back_from_the_host(
    preemption: str, fast_forward: bool
) -> None:
    changes = {"block_size": 1, "watermark": 0.0, "capacity": 22, "preemption": preemption}
    table = run(*PAUSED, fast_forward=fast_forward, **changes).requests()
    # It has 4 + 2 tokens: all but the last one's KV on the host, or nothing.
    kv_s = COEFFICIENTS["adapter_load.latency_s"] + 5 * 16 / COEFFICIENTS["adapter_load.bytes_per_s"]
    again_s = prefill_s(6) if preemption == "recompute" else kv_s + chunks_s((5, 1))
    out_s = kv_s if preemption == "swap" else 0.0
    second_s = FIRST_S + out_s + merge_s(1) + merge_s(2) + prefill_s(4) + step_s(5)
    third_s = second_s + merge_s(2) + merge_s(1) + again_s + steps_s(2, 7)
    assert table.finish_s.tolist() == pytest.approx([FIRST_S, second_s, third_s], abs=1e-12)
    assert table.first_token_s[2] == merge_s(1) + prefill_s(4, 4)


def test_an_adapter_that_only_the_paused_use_makes_way_with_them_where_no_other_may_be_in_the_batch() -> None:
    table = run(*PAUSED, max_loras=1).requests()
    assert table.preemptions.tolist() == [0, 0, 1]
    assert (table.status == "finished").all()


def test_weights_are_there_before_they_are_merged() -> None:
    table = run(Row(0.0, A, 4, 1, 1), loader="prefetching").requests()
    assert table.finish_s[0] == load_s(1) + merge_s(1) + prefill_s(4)


def test_the_clock_may_stop_while_a_request_is_paused() -> None:
    recorder = run(*PAUSED, until_s=FIRST_S + merge_s(1))
    table = recorder.requests()
    assert table.status.tolist() == ["finished", "unfinished", "unfinished"]
    assert table.first_token_s[2] == merge_s(1) + prefill_s(4, 4)
    assert table.replica[2] == 0


class MoveTheThird(Migration):
    """Sends the third request from replica 0 to 1 once, and says why."""

    def __init__(self, at_s: float) -> None:
        self.period_s: float = at_s
        self.moved = False

    def plan(self, view: ClusterView) -> Plan:
        found = [request for request in view.requests_of(0) if request.id == 2]
        if self.moved or not found:
            return Plan()
        self.moved = True
        self.context_tokens = view.context_tokens(found[0], 0)
        return Plan((Move(found[0], 0, 1),), "it is the third")


@BOTH
def test_a_paused_request_can_move_and_loses_nothing(fast_forward: bool) -> None:
    case = CASE.but(rows=PAUSED, replicas=2)
    scenario = case.scenario(fast_forward=fast_forward)
    migration = MoveTheThird(FIRST_S + 2**-8)
    policies = replace(scenario.policies, migration=migration, router=ToTheFirst())
    recorder = Simulation(replace(scenario, policies=policies)).run()
    table = recorder.requests()
    assert migration.context_tokens == 6
    assert table.migrations.tolist() == [0, 0, 1]
    assert table.replica.tolist() == [0, 0, 1]
    assert table.first_token_s[2] == merge_s(1) + prefill_s(4, 4), "its first token was the first"
    # It leaves when the prefill under way is over, and is prefilled with what it had said.
    leaves_s = FIRST_S + merge_s(1) + merge_s(2) + prefill_s(4)
    there_s = leaves_s + merge_s(1) + prefill_s(6) + steps_s(2, 7)
    assert table.finish_s[2] == pytest.approx(there_s, abs=1e-12)
    (moved,) = recorder.journal.moved
    assert (moved.time_s, moved.decided_s) == pytest.approx((leaves_s, FIRST_S + 2**-8))
    assert moved[2:] == (2, "adapter-0", 0, 1, 6, True, "it is the third")
    between_s = (table.finish_s - table.first_token_s).sum()
    assert recorder.token_gaps.mean() * (table.output_tokens - 1).sum() == pytest.approx(between_s)


class ToTheFirst(Router):
    """A router that sends all requests to replica 0."""

    informed = False

    def route(self, request: Request, candidates: object, view: ClusterView) -> int:
        return 0


@BOTH
def test_dloras_worked_example(fast_forward: bool) -> None:
    """Section 4.2: three iterations of 100 ms not merged, or a switch of 100 ms and three of 50 ms."""
    zero = dict.fromkeys(COEFFICIENTS, 0.0)
    example = zero | {
        "decode.intercept_s": 0.05,
        "kernels.mbgmv.decode.intercept_s": 0.05,
        "merge.intercept_s": 0.1,
        "adapter_load.bytes_per_s": 1.0,
        "collectives.bytes_per_s": 1.0,
    }
    case = CASE.but(rows=(Row(0.0, A, 4, 4, 4),), coefficients=example)
    unmerged = case.but(scheduler="unmerged_only").run(fast_forward=fast_forward).requests()
    merged = case.run(fast_forward=fast_forward).requests()
    assert unmerged.latency_s[0] == pytest.approx(0.300, abs=1e-12)
    assert merged.latency_s[0] == pytest.approx(0.250, abs=1e-12)


def test_of_several_paused_requests_the_last_one_is_preempted() -> None:
    rows = (
        Row(0.0, A, 4, 2, 2),
        Row(0.0, B, 4, 9, 9),
        *(Row(0.0, A, 4, 8, 8),) * 3,
    )
    recorder = run(*rows, block_size=1, watermark=0.0, capacity=41)
    assert recorder.requests().preemptions.tolist() == [0, 0, 0, 0, 1]


def test_what_is_prefetched_leaves_the_kv_of_the_paused_alone() -> None:
    """Beside the paused one's 6 slots and 4, and the second's 5 to 13 and 8, adapter 2 with its 16 does not fit."""
    rows = (Row(0.0, A, 4, 2, 2), Row(0.0, B, 4, 9, 9), Row(0.0, A, 4, 5, 5), Row(0.01, 2, 4, 2, 2))
    recorder = run(*rows, loader="prefetching", block_size=1, watermark=0.0, capacity=40)
    assert recorder.requests().preemptions.tolist() == [0, 0, 0, 0]
    assert (recorder.requests().status == "finished").all()


def test_kv_on_one_host_is_of_no_use_to_another_replica() -> None:
    """It made way, its KV went to the host, and then it moved: there it is prefilled anew."""
    rows = PAUSED
    changes = {"block_size": 1, "watermark": 0.0, "capacity": 22, "preemption": "swap"}
    scenario = CASE.but(rows=rows, replicas=2, **changes).scenario()
    policies = replace(scenario.policies, migration=MoveTheThird(FIRST_S + 2**-4), router=ToTheFirst())
    recorder = Simulation(replace(scenario, policies=policies)).run()
    table = recorder.requests()
    assert (table.preemptions[2], table.migrations[2]) == (1, 1)
    (moved,) = recorder.journal.moved
    assert moved.recomputed_tokens == 6
    assert table.finish_s[2] == pytest.approx(moved.time_s + merge_s(1) + prefill_s(6) + steps_s(2, 7))
