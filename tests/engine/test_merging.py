"""One adapter in the weights at a time: what a switch takes, and what it saves.

When it is switched is in tests/policies/test_merged_per_batch.py.
"""

from __future__ import annotations

import pytest

from simlora.metrics.recorder import Recorder
from tests.engine.by_hand import merge_s, prefill_s, step_s, steps_s
from tests.engine.cases import Case, Row

P = prefill_s(4)
CASE = Case(rows=(), scheduler="merged_per_batch", loader="cached", max_wait_tokens=0)
"""Adapters 0, 1 and 2 have ranks 1, 2 and 4. The kernel is mbgmv: merged, it has no work."""


def run(*rows: Row, **changes: object) -> Recorder:
    return CASE.but(rows=rows, **changes).run()


def test_the_first_batch_waits_for_one_merge_and_the_next_also_takes_the_old_one_out():
    """Before requests of the base model it is only taken out; for more of them there is nothing to do."""
    rows = (Row(0.0, 0, 4, 2, 2), Row(0.0, 1, 4, 2, 2), Row(0.0, None, 4, 1, 1), Row(1.0, None, 4, 1, 1))
    recorder = run(*rows)
    table = recorder.requests()
    first_s = merge_s(1) + P + step_s(5)
    second_s = first_s + merge_s(1) + merge_s(2) + P + step_s(5)
    assert table.admitted_s.tolist()[:2] == [merge_s(1), first_s + merge_s(1) + merge_s(2)]
    assert table.finish_s.tolist()[:3] == pytest.approx(
        [first_s, second_s, second_s + merge_s(2) + P], abs=1e-12
    )
    assert table.latency_s[3] == P
    assert (recorder.switches, recorder.switch_s) == (3, pytest.approx(2 * merge_s(1) + 2 * merge_s(2)))


def test_a_merged_adapter_costs_no_lora_work_and_an_unmerged_one_would() -> None:
    row = Row(0.0, 0, 4, 4, 4)
    assert run(row).requests().latency_s[0] == merge_s(1) + P + steps_s(3, 5)
    assert run(row, scheduler="fcfs").requests().latency_s[0] > P + steps_s(3, 5)


def test_a_request_that_comes_while_the_batch_runs_joins_it_without_a_switch() -> None:
    comes_s = merge_s(1) + P + 2**-10
    recorder = run(Row(0.0, 0, 4, 3, 3), Row(comes_s, 0, 4, 1, 1))
    table = recorder.requests()
    joins_s = merge_s(1) + P + step_s(5)
    assert table.admitted_s[1] == joins_s
    assert table.finish_s.tolist() == [joins_s + P + step_s(6), joins_s + P]
    assert recorder.switches == 1


def test_the_gpus_of_a_replica_merge_their_shares_at_the_same_time() -> None:
    table = run(Row(0.0, 2, 4, 1, 1), tp=2).requests()
    assert table.admitted_s[0] == merge_s(4, tp=2) < merge_s(4)
