"""Preemption by hand: two requests of 4 + 6 tokens in a pool of 14 slots, which they fill after two steps.

After the third step both hold 8 tokens, 16 > 14. The one admitted last leaves with 4 tokens said, comes back when
the other is done, and has its last token one decode step later.
"""

import pytest

from tests.engine.by_hand import chunks_s, prefill_s, step_s
from tests.engine.cases import COEFFICIENTS as C
from tests.engine.cases import Case, Row

ONE = Row(0.0, None, 4, 6, 6)
PAIR = Case(rows=(ONE, ONE), capacity=14, reserve="paged", block_size=1, watermark=0.0, max_wait_tokens=0)
FULL_S = prefill_s(4, 4) + step_s(5, 5) + step_s(6, 6) + step_s(7, 7)
SWAP_S = C["adapter_load.latency_s"] + 7 * 16 / C["adapter_load.bytes_per_s"]
"""To copy the KV of seven tokens, all but the last one's."""


@pytest.mark.parametrize(
    "preemption, out_s, again_s",
    [("recompute", 0.0, prefill_s(8)), ("swap", SWAP_S, SWAP_S + chunks_s((7, 1)))],
)
def test_prompt_and_what_was_said_are_prefilled_again_or_copied_out_and_in_again(
    preemption: str, out_s: float, again_s: float
) -> None:
    """The batch waits until the slots are free."""
    table = PAIR.but(preemption=preemption).table()
    older_s = FULL_S + out_s + step_s(8) + step_s(9)
    assert table.preemptions.tolist() == [0, 1], "the second was admitted last"
    assert table.finish_s.tolist() == [older_s, older_s + again_s + step_s(9)]
    assert table.first_token_s.tolist() == [prefill_s(4, 4)] * 2, "the first token stays the first"
    assert table.admitted_s.tolist() == [0.0, 0.0]


def test_a_prefill_too_waits_until_swapped_kv_has_left() -> None:
    """LCFS: a request that arrives during the third step, and fits, starts right after the preemption."""
    newest = Row(FULL_S - 2**-10, None, 1, 1, 1)
    table = PAIR.but(rows=(ONE, ONE, newest), preemption="swap", scheduler="lcfs").table()
    assert table.preemptions.tolist() == [1, 0, 0], "of a prefill, the later arrival comes first"
    assert table.admitted_s[2] == FULL_S + SWAP_S


def test_a_preempted_request_may_outgrow_the_prefill_limit() -> None:
    table = PAIR.but(max_num_batched_tokens=7, rows=(ONE, ONE._replace(arrival_s=2**-20))).table()
    assert table.preemptions[1] == 1
    assert (table.status == "finished").all()
