"""Adapters in memory of their own: what waits for room in it, and what a flush of its allocator costs.

Adapters 0, 1 and 2 have ranks 1, 1 and 2, and so 4, 4 and 8 token slots.
"""

import pytest

from simlora.metrics.recorder import Recorder
from simlora.metrics.timeline import REGION
from simlora.policies.scheduling.peft_continuous import PeftContinuous
from tests.engine.by_hand import FLUSH_S, prefill_s, step_s
from tests.engine.cases import COEFFICIENTS as C
from tests.engine.cases import TINY, Case, Row

CASE = Case(ranks=(1, 1, 2), kernel="merged", loader="cached", max_wait_tokens=0, adapter_memory="contiguous")
TWO = (Row(0.0, 0, 4, 9, 9), Row(2**-10, 1, 4, 9, 9))


def run(slots: int, *rows: Row, **changes: object) -> Recorder:
    return CASE.but(rows=rows, adapter_region_tokens=slots, **changes).run()


@pytest.mark.parametrize("slots, stall_s", [(14, FLUSH_S), (16, 0.0)])
def test_a_load_for_which_memory_has_to_be_flushed_holds_all_requests_up(slots, stall_s):
    """The second adapter beside the first takes 14 slots, and a flush unless there are 16."""
    second = run(slots, *TWO).requests().loc[1]
    assert second.admitted_s == prefill_s(4) + stall_s
    assert second.first_token_s == prefill_s(4) + stall_s + prefill_s(4)


@pytest.mark.parametrize("memory, slots", [("contiguous", 13), ("padded", 15)])
def test_a_request_that_does_not_fit_beside_the_others_waits_and_one_that_never_fits_is_rejected(
    memory, slots
):
    """Contiguous takes 14 slots for both; padded 8 and two copies of 4."""
    waits, fits = (run(most, *TWO, adapter_memory=memory).requests() for most in (slots, slots + 1))
    assert waits.admitted_s[1] == waits.finish_s[0]
    assert fits.admitted_s[1] < fits.finish_s[0]
    never = run(8, Row(0.0, 2, 4, 3, 3), TWO[0], adapter_memory=memory).requests()
    assert never.status.tolist() == ["rejected", "finished"]
    assert never.reason[0] == "its adapter does not fit replica.adapter_region_tokens 8"


def test_the_pool_counts_the_adapters_too_as_the_published_variants_do():
    rows = (Row(0.0, 0, 4, 3, 3), Row(0.0, 1, 4, 3, 3))
    roomy, tight = (run(100, *rows, capacity=slots, reserve="full").requests() for slots in (22, 21))
    assert roomy.admitted_s.tolist() == [0.0, 0.0], "2 * (4 + 3) + 4 + 4"
    assert tight.admitted_s[1] == tight.finish_s[0]


@pytest.mark.parametrize("adapters, stretches", [((0, 1, 0), 3), ((0, 0, 1), 2)])
def test_padded_copies_cost_a_stretch_each_in_the_order_of_the_batch(adapters, stretches):
    rows = [Row(0.0, adapter, 4, 2, 2) for adapter in adapters]
    table = run(100, *rows, adapter_memory="padded", kernel="padded_bmm").requests()
    prefill, decode = "kernels.padded_bmm.prefill", "kernels.padded_bmm.decode"
    base_s = prefill_s(4, 4, 4) + step_s(5, 5, 5) + C[f"{prefill}.intercept_s"] + C[f"{decode}.intercept_s"]
    base_s += C[f"{prefill}.per_token_max_rank_s"] * 12
    stretch_s = C[f"{prefill}.per_segment_s"] + C[f"{decode}.per_segment_s"]
    stretch_s += C[f"{decode}.per_segment_max_rank_s"]
    assert table.finish_s[0] == pytest.approx(base_s + stretches * stretch_s, abs=1e-12)


def test_the_timeline_shows_the_region_and_only_where_there_is_one():
    recorder = run(16, Row(0.0, 0, 4, 3, 3), Row(1.0, None, 4, 3, 3))
    frame = recorder.timeline.frame()
    assert frame[frame.running > 0].region_used_tokens.iloc[0] == 4
    assert frame.region_used_tokens.iloc[-1] == 0, "the adapter has left with its request"
    assert frame.region_largest_free_tokens.iloc[-1] == 16
    unified = run(0, Row(0.0, 0, 4, 3, 3), adapter_memory="unified")
    assert not set(REGION) & set(unified.timeline.frame())


# Adapters that are whole copies of the model: in the pool, loaded and evicted like any other --


SLOTS = -(-TINY.weight_bytes // TINY.kv_bytes_per_token)
LOAD_S = C["adapter_load.latency_s"] + TINY.weight_bytes / C["adapter_load.bytes_per_s"]


@pytest.mark.parametrize(
    "adapters, loaded",
    [((0, 1, 0, 1), (True, True, False, False)), ((0, 1, 2, 1, 0), (True, True, True, False, True))],
    ids=[
        "copies that fit stay, and changing over is free",
        "one more takes the place of the one used last of all",
    ],
)
def test_a_copy_is_as_large_as_the_model_whatever_the_rank(adapters, loaded):
    """In a pool that holds two copies, and 20 slots of KV."""
    rows = tuple(Row(float(i), adapter, 4, 1, 1) for i, adapter in enumerate(adapters))
    of = Case(rows=rows, capacity=2 * SLOTS + 20, kernel="merged", eviction="lru", max_wait_tokens=0)
    copies = of.but(reserve="paged", watermark=0.0, full_copies=True, target_modules=())
    recorder = copies.run(scheduler=lambda: PeftContinuous(merge=False))
    table = recorder.requests()
    cold_s = [LOAD_S if each else 0.0 for each in loaded]
    assert table.cold_start_s.tolist() == pytest.approx(cold_s)
    assert table.latency_s.tolist() == pytest.approx([each_s + prefill_s(4) for each_s in cold_s])
    assert recorder.adapter_loads == sum(loaded)
