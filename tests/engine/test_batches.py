"""What batches take by hand: with one adapter in the weights, of one shape, where requests are aborted or preempted.

Which requests make a batch, and when an adapter is switched, is in tests/policies.
"""

from itertools import accumulate

import pytest

from tests.engine.by_hand import chunks_s, kv_s, load_s, merge_s, prefill_s, step_s, steps_s
from tests.engine.cases import Case, Row

P = prefill_s(4)

# One adapter in the weights at a time ---------------------------------------------------------

MERGED = Case(scheduler="merged_per_batch", loader="cached", max_wait_tokens=0)
"""Adapters 0, 1 and 2 have ranks 1, 2 and 4. The kernel is mbgmv: merged, it has no work."""


def test_the_first_batch_waits_for_one_merge_and_the_next_also_takes_the_old_one_out():
    """Before requests of the base model it is only taken out; for more of them there is nothing to do."""
    rows = (Row(0.0, 0, 4, 2, 2), Row(0.0, 1, 4, 2, 2), Row(0.0, None, 4, 1, 1), Row(1.0, None, 4, 1, 1))
    recorder = MERGED.but(rows=rows).run()
    table = recorder.requests()
    first_s = merge_s(1) + P + step_s(5)
    second_s = first_s + merge_s(1) + merge_s(2) + P + step_s(5)
    assert table.admitted_s.tolist()[:2] == [merge_s(1), first_s + merge_s(1) + merge_s(2)]
    third_s = second_s + merge_s(2) + P
    assert table.finish_s.tolist()[:3] == pytest.approx([first_s, second_s, third_s], abs=1e-12)
    assert table.latency_s[3] == P
    assert (recorder.switches, recorder.switch_s) == (3, pytest.approx(2 * merge_s(1) + 2 * merge_s(2)))


def test_a_merged_adapter_costs_no_lora_work_and_an_unmerged_one_would():
    row = Row(0.0, 0, 4, 4, 4)
    assert MERGED.serve(row).latency_s[0] == merge_s(1) + P + steps_s(3, 5)
    assert MERGED.serve(row, scheduler="fcfs").latency_s[0] > P + steps_s(3, 5)


def test_the_gpus_of_a_replica_merge_their_shares_at_the_same_time():
    table = MERGED.serve(Row(0.0, 2, 4, 1, 1), tp=2)
    assert table.admitted_s[0] == merge_s(4, tp=2) < merge_s(4)


# Of one shape ---------------------------------------------------------------------------------

STATIC = Case(scheduler="static_batch", reserve="padded", kernel="merged", loader="cached")
"""Requests of one adapter together, padded to the longest, until the last one is done."""


def test_prompts_are_padded_to_the_longest_in_prefill_and_in_every_step():
    table = STATIC.serve(Row(0.0, 0, 4, 3, 3), Row(0.0, 0, 10, 2, 2))
    assert table.first_token_s.tolist() == [prefill_s(10, 10)] * 2
    both_s = prefill_s(10, 10) + step_s(11, 11)
    assert table.finish_s.tolist() == [both_s + step_s(12), both_s], "one that is done takes its row along"


def test_between_two_batches_of_one_adapter_it_stays_and_otherwise_it_is_loaded_again():
    rows = [Row(float(i), adapter, 4, 2, 2) for i, adapter in enumerate((0, 0, 1, 0))]
    table = STATIC.serve(*rows, loader="blocking", eviction="latest")
    assert table.cold_start_s.tolist() == [load_s(1), 0.0, load_s(2), load_s(1)]


# Early abort: a target of 0.75 s, a margin of 0.125 s, so 0.625 s of patience -------------------

LONG = Row(0.0, None, 4, 60, 60)
ABORTING = Case(scheduler="early_abort", max_num_seqs=1, max_wait_tokens=0)
ENDS_S = list(accumulate((step_s(context) for context in range(5, 5 + 59)), initial=P))
"""Ends of the prefill and of the steps of LONG alone."""


@pytest.mark.parametrize("comes_s", [2**-10, 0.1])
def test_a_waiting_request_is_aborted_at_the_first_boundary_at_which_its_patience_is_over(comes_s):
    table = ABORTING.but(rows=(LONG, Row(comes_s, 0, 4, 1, 1))).table()
    assert table.status.tolist() == ["finished", "aborted"]
    assert table.reason[1] == "too old to meet its first-token target"
    assert table.finish_s[1] == min(end_s for end_s in ENDS_S if end_s >= comes_s + 0.625)
    assert table.finish_s[0] == ENDS_S[-1]


def test_a_replica_whose_requests_were_all_aborted_is_idle_until_the_next_arrival():
    simulation = ABORTING.but(rows=(LONG, Row(2**-10, None, 4, 1, 1), Row(9.0, None, 4, 1, 1))).simulation()
    assert simulation.recorder.requests().latency_s[2] == P
    assert simulation.fleet.replicas[0].busy_s == pytest.approx(ENDS_S[-1] + P)
    assert simulation.fleet.outstanding.tolist() == [0]


# Preemption -----------------------------------------------------------------------------------

ONE = Row(0.0, None, 4, 6, 6)
PAIR = Case(rows=(ONE, ONE), capacity=14, reserve="paged", block_size=1, watermark=0.0, max_wait_tokens=0)
"""Two requests of 4 + 6 tokens in a pool of 14 slots, which they fill after two steps.

After the third step both hold 8 tokens, 16 > 14. The one admitted last leaves with 4 tokens said, comes back when
the other is done, and has its last token one decode step later.
"""
FULL_S = prefill_s(4, 4) + step_s(5, 5) + step_s(6, 6) + step_s(7, 7)
SWAP_S = kv_s(7)
"""To copy the KV of seven tokens, all but the last one's."""


@pytest.mark.parametrize(
    "preemption, out_s, again_s",
    [("recompute", 0.0, prefill_s(8)), ("swap", SWAP_S, SWAP_S + chunks_s((7, 1)))],
)
def test_prompt_and_what_was_said_are_prefilled_again_or_copied_out_and_in_again(preemption, out_s, again_s):
    """The batch waits until the slots are free."""
    table = PAIR.but(preemption=preemption).table()
    older_s = FULL_S + out_s + step_s(8) + step_s(9)
    assert table.preemptions.tolist() == [0, 1], "the second was admitted last"
    assert table.finish_s.tolist() == [older_s, older_s + again_s + step_s(9)]
    assert table.first_token_s.tolist() == [prefill_s(4, 4)] * 2, "the first token stays the first"
    assert table.admitted_s.tolist() == [0.0, 0.0]


def test_a_prefill_too_waits_until_swapped_kv_has_left():
    """LCFS: a request that arrives during the third step, and fits, starts right after the preemption."""
    table = PAIR.serve(ONE, ONE, Row(FULL_S - 2**-10, None, 1, 1, 1), preemption="swap", scheduler="lcfs")
    assert table.preemptions.tolist() == [1, 0, 0], "of a prefill, the later arrival comes first"
    assert table.admitted_s[2] == FULL_S + SWAP_S


def test_a_preempted_request_may_outgrow_the_prefill_limit():
    table = PAIR.serve(ONE, ONE._replace(arrival_s=2**-20), max_num_batched_tokens=7)
    assert table.preemptions[1] == 1
    assert (table.status == "finished").all()
