"""Preemption by hand: two requests of 4 + 6 tokens in a pool of 14 slots, which they fill after two steps.

After the third step both hold 8 tokens, 16 > 14. The one admitted last leaves with 4 tokens said, comes back when
the other is done, and has its last token one decode step later.
"""

import pytest

from tests.engine.by_hand import chunks_s, prefill_s, step_s
from tests.engine.cases import Case, Row

PAIR = Case(
    rows=(Row(0.0, None, 4, 6, 6), Row(0.0, None, 4, 6, 6)),
    capacity=14,
    reserve="paged",
    block_size=1,
    watermark=0.0,
    max_wait_tokens=0,
)
KV_BYTES = 16


def swap_s(tokens: int) -> float:
    return (
        PAIR.coefficients["adapter_load.latency_s"]
        + tokens * KV_BYTES / PAIR.coefficients["adapter_load.bytes_per_s"]
    )


FULL_S = prefill_s(4, 4) + step_s(5, 5) + step_s(6, 6) + step_s(7, 7)


@pytest.mark.parametrize("fast_forward", [True, False])
def test_recompute_prefills_the_prompt_and_what_was_said(fast_forward: bool) -> None:
    table = PAIR.run(fast_forward=fast_forward).requests()
    older_s = FULL_S + step_s(8) + step_s(9)
    assert table.preemptions.tolist() == [0, 1], "the second was admitted last"
    assert table.finish_s[0] == older_s
    assert table.finish_s[1] == older_s + prefill_s(8) + step_s(9)
    assert table.first_token_s.tolist() == [prefill_s(4, 4)] * 2, "the first token stays the first"
    assert table.admitted_s.tolist() == [0.0, 0.0]


@pytest.mark.parametrize("fast_forward", [True, False])
def test_swap_moves_all_kv_but_the_last_tokens_out_and_in_again(fast_forward: bool) -> None:
    table = PAIR.but(preemption="swap").run(fast_forward=fast_forward).requests()
    older_s = FULL_S + swap_s(7) + step_s(8) + step_s(9)
    assert table.finish_s[0] == older_s, "the batch waits until the slots are free"
    assert table.finish_s[1] == older_s + swap_s(7) + chunks_s((7, 1)) + step_s(9)


@pytest.mark.parametrize("fast_forward", [True, False])
def test_a_prefill_too_waits_until_swapped_kv_has_left(fast_forward: bool) -> None:
    """LCFS: a request that arrives during the third step, and fits, starts right after the preemption."""
    newest = Row(FULL_S - 2**-10, None, 1, 1, 1)
    case = PAIR.but(rows=(*PAIR.rows, newest), preemption="swap", scheduler="lcfs", max_wait_tokens=0)
    table = case.run(fast_forward=fast_forward).requests()
    assert table.preemptions.tolist() == [1, 0, 0], "of a prefill, the later arrival comes first"
    assert table.admitted_s[2] == FULL_S + swap_s(7)


def test_a_preempted_request_may_outgrow_the_prefill_limit() -> None:
    table = (
        PAIR.but(max_num_batched_tokens=7, rows=(Row(0.0, None, 4, 6, 6), Row(2**-20, None, 4, 6, 6)))
        .run()
        .requests()
    )
    assert table.preemptions[1] == 1
    assert (table.status == "finished").all()
