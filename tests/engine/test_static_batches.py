"""Static batches: requests of one adapter together, padded to the longest, until the last one is done.

Which requests make a batch, and the rounds of adapters, are in tests/policies/test_static_batch.py.
"""

from __future__ import annotations

import pandas as pd
import pytest

from tests.engine.by_hand import load_s, prefill_s, step_s, steps_s
from tests.engine.cases import Case, Row

CASE = Case(rows=(), scheduler="static_batch", reserve="padded", kernel="merged", loader="cached")


def table(*rows: Row, **changes: object) -> pd.DataFrame:
    return CASE.but(rows=rows, **changes).table()


def test_prompts_are_padded_to_the_longest_in_prefill_and_in_every_step() -> None:
    found = table(Row(0.0, 0, 4, 3, 3), Row(0.0, 0, 10, 2, 2))
    assert found.first_token_s.tolist() == [prefill_s(10, 10)] * 2
    both_s = prefill_s(10, 10) + step_s(11, 11)
    assert found.finish_s.tolist() == [both_s + step_s(12), both_s], "one that is done takes its row along"


@pytest.mark.parametrize("capacity, waits_s", [(90, 0.0), (89, prefill_s(10, 10) + steps_s(9, 11, 11))])
def test_a_batch_is_no_larger_than_its_padded_rectangle_fits(capacity: int, waits_s: float) -> None:
    """Three of 11 + 9 slots at most are 60; beside the short ones the long one needs 3 * (21 + 9) = 90."""
    found = table(*(Row(0.0, None, prompt, 10, 10) for prompt in (10, 10, 20)), capacity=capacity)
    assert found.admitted_s.tolist() == pytest.approx([0.0, 0.0, waits_s])


def test_between_two_batches_of_one_adapter_it_stays_and_otherwise_it_is_loaded_again() -> None:
    rows = [Row(float(i), adapter, 4, 2, 2) for i, adapter in enumerate((0, 0, 1, 0))]
    found = table(*rows, loader="blocking", eviction="latest")
    assert found.cold_start_s.tolist() == [load_s(1), 0.0, load_s(2), load_s(1)]
