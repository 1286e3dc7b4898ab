"""Static batches: requests of one adapter together, padded to the longest, until the last one is done."""

from __future__ import annotations

import pytest

from simlora.metrics.recorder import Recorder
from tests.engine.by_hand import load_s, prefill_s, step_s, steps_s
from tests.engine.cases import Case, Row

CASE = Case(rows=(), scheduler="static_batch", reserve="padded", kernel="merged", loader="cached")


def run(*rows: Row, fast_forward: bool = True, **changes: object) -> Recorder:
    return CASE.but(rows=rows, **changes).run(fast_forward=fast_forward)


@pytest.mark.parametrize("fast_forward", [True, False])
def test_prompts_are_padded_to_the_longest_in_prefill_and_in_every_step(fast_forward: bool) -> None:
    table = run(Row(0.0, 0, 4, 3, 3), Row(0.0, 0, 10, 2, 2), fast_forward=fast_forward).requests()
    assert table.first_token_s.tolist() == [prefill_s(10, 10)] * 2
    both_s = prefill_s(10, 10) + step_s(11, 11)
    assert table.finish_s.tolist() == [both_s + step_s(12), both_s], (
        "a request that is done takes its row along"
    )


@pytest.mark.parametrize("fast_forward", [True, False])
def test_no_request_joins_a_batch_and_the_next_starts_when_its_last_request_is_done(
    fast_forward: bool,
) -> None:
    table = run(Row(0.0, 0, 4, 9, 9), Row(2**-10, 0, 4, 1, 1), fast_forward=fast_forward).requests()
    assert table.finish_s[0] == prefill_s(4) + steps_s(8, 5)
    assert table.admitted_s[1] == table.finish_s[0]
    assert table.finish_s[1] == table.finish_s[0] + prefill_s(4)


def test_a_batch_has_one_adapter_and_rounds_go_adapter_by_adapter() -> None:
    rows = [Row(0.0, adapter, 4, 2, 2) for adapter in (1, 0, 1, None)]
    table = run(*rows).requests()
    two_s, one_s = prefill_s(4, 4) + step_s(5, 5), prefill_s(4) + step_s(5)
    ends = [two_s, two_s + one_s, two_s, two_s + 2 * one_s]
    assert table.finish_s.tolist() == pytest.approx(ends, abs=1e-12)


def test_a_round_is_served_to_its_end_before_requests_that_came_meanwhile() -> None:
    """The late request has the adapter of the first batch, and comes while that batch runs."""
    rows = (Row(0.0, 0, 4, 2, 2), Row(0.0, 1, 4, 2, 2), Row(2**-10, 0, 4, 2, 2))
    table = run(*rows).requests()
    assert table.admitted_s.sort_values().index.tolist() == [0, 1, 2]


def test_a_batch_has_at_most_its_seats_and_the_rest_of_the_group_comes_next() -> None:
    rows = [Row(0.0, adapter, 4, 2, 2) for adapter in (0, 1, 0, 0)]
    table = run(*rows, max_num_seqs=2).requests()
    two_s, one_s = prefill_s(4, 4) + step_s(5, 5), prefill_s(4) + step_s(5)
    assert table.finish_s.tolist() == [two_s, two_s + 2 * one_s, two_s, two_s + one_s]


def test_a_batch_is_no_larger_than_its_padded_rectangle_fits() -> None:
    """Three of 11 + 9 slots at most are 60; beside the short ones the long one needs 3 * (21 + 9) = 90."""
    rows = [Row(0.0, None, prompt, 10, 10) for prompt in (10, 10, 20)]
    fits, short = (run(*rows, capacity=capacity).requests().admitted_s.tolist() for capacity in (90, 89))
    assert fits == [0.0, 0.0, 0.0]
    assert short[:2] == [0.0, 0.0]
    assert short[2] == pytest.approx(prefill_s(10, 10) + steps_s(9, 11, 11))


def test_between_two_batches_of_one_adapter_it_stays_and_otherwise_it_is_loaded_again() -> None:
    rows = [Row(float(i), adapter, 4, 2, 2) for i, adapter in enumerate((0, 0, 1, 0))]
    recorder = run(*rows, loader="blocking", eviction="latest")
    assert recorder.requests().cold_start_s.tolist() == [load_s(1), 0.0, load_s(2), load_s(1)]
    assert recorder.adapter_loads == 3
