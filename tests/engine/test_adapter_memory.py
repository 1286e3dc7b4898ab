"""Adapters in memory of their own: what waits for room in it, and what a flush of its allocator costs.

Adapters 0, 1 and 2 have ranks 1, 2 and 4, and so 4, 8 and 16 token slots.
"""

from __future__ import annotations

import pytest

from simlora.core.errors import InputError
from simlora.metrics.recorder import Recorder
from simlora.metrics.timeline import REGION
from tests.engine.by_hand import FLUSH_S, prefill_s, step_s
from tests.engine.cases import COEFFICIENTS, Case, Row

CASE = Case(
    rows=(), ranks=(1, 1, 2), kernel="merged", loader="cached", max_wait_tokens=0, adapter_memory="contiguous"
)
P = prefill_s(4)


def run(slots: int, *rows: Row, fast_forward: bool = True, **changes: object) -> Recorder:
    return CASE.but(rows=rows, adapter_region_tokens=slots, **changes).run(fast_forward=fast_forward)


@pytest.mark.parametrize("fast_forward", [True, False])
@pytest.mark.parametrize("slots, stall_s", [(14, FLUSH_S), (16, 0.0)])
def test_a_load_for_which_memory_has_to_be_flushed_holds_all_requests_up(
    slots: int, stall_s: float, fast_forward: bool
) -> None:
    """The second adapter beside the first takes 14 slots, and a flush unless there are 16."""
    rows = (Row(0.0, 0, 4, 9, 9), Row(2**-10, 1, 4, 9, 9))
    table = run(slots, *rows, fast_forward=fast_forward).requests()
    assert table.admitted_s[1] == P + stall_s
    assert table.first_token_s[1] == P + stall_s + P


@pytest.mark.parametrize("memory, slots", [("contiguous", 13), ("padded", 15)])
def test_a_request_that_does_not_fit_beside_the_others_waits_until_they_have_left(
    memory: str, slots: int
) -> None:
    """Contiguous takes 14 slots for both; padded 8 and two copies of 4."""
    rows = (Row(0.0, 0, 4, 3, 3), Row(2**-10, 1, 4, 3, 3))
    waits = run(slots, *rows, adapter_memory=memory).requests()
    assert waits.admitted_s[1] == waits.finish_s[0]
    fits = run(slots + 1, *rows, adapter_memory=memory).requests()
    assert fits.admitted_s[1] < fits.finish_s[0]


@pytest.mark.parametrize("memory", ["contiguous", "padded"])
def test_an_adapter_that_never_fits_is_rejected_with_the_reason(memory: str) -> None:
    table = run(8, Row(0.0, 2, 4, 3, 3), Row(0.0, 0, 4, 3, 3), adapter_memory=memory).requests()
    assert table.status.tolist() == ["rejected", "finished"]
    assert table.reason[0] == "its adapter does not fit replica.adapter_region_tokens 8"


def test_the_pool_counts_the_adapters_too_as_the_published_variants_do() -> None:
    rows = (Row(0.0, 0, 4, 3, 3), Row(0.0, 1, 4, 3, 3))
    roomy, tight = (run(100, *rows, capacity=slots, reserve="full").requests() for slots in (22, 21))
    assert roomy.admitted_s.tolist() == [0.0, 0.0], "2 * (4 + 3) + 4 + 4"
    assert tight.admitted_s[1] == tight.finish_s[0]


def test_padded_copies_cost_a_stretch_each_in_the_order_of_the_batch() -> None:
    """The batch 0 1 0 has three stretches, 0 0 1 two."""
    c = COEFFICIENTS

    def finish_s(*adapters: int) -> float:
        rows = [Row(0.0, adapter, 4, 2, 2) for adapter in adapters]
        return run(100, *rows, adapter_memory="padded", kernel="padded_bmm").requests().finish_s[0]

    base_s = prefill_s(4, 4, 4) + step_s(5, 5, 5)
    base_s += c["kernels.padded_bmm.prefill.intercept_s"] + c["kernels.padded_bmm.decode.intercept_s"]
    base_s += c["kernels.padded_bmm.prefill.per_token_max_rank_s"] * 12 * 1
    stretch_s = c["kernels.padded_bmm.prefill.per_segment_s"] + c["kernels.padded_bmm.decode.per_segment_s"]
    stretch_s += c["kernels.padded_bmm.decode.per_segment_max_rank_s"] * 1
    assert finish_s(0, 1, 0) == pytest.approx(base_s + 3 * stretch_s, abs=1e-12)
    assert finish_s(0, 0, 1) == pytest.approx(base_s + 2 * stretch_s, abs=1e-12)


def test_the_timeline_shows_the_region_and_only_where_there_is_one() -> None:
    recorder = run(16, Row(0.0, 0, 4, 3, 3), Row(1.0, None, 4, 3, 3))
    assert recorder.timeline is not None
    frame = recorder.timeline.frame()
    busy = frame[frame.running > 0]
    assert busy.region_used_tokens.iloc[0] == 4
    assert frame.region_used_tokens.iloc[-1] == 0, "the adapter has left with its request"
    assert frame.region_largest_free_tokens.iloc[-1] == 16
    unified = run(0, Row(0.0, 0, 4, 3, 3), adapter_memory="unified")
    assert unified.timeline is not None
    assert not set(REGION) & set(unified.timeline.frame())


def test_a_calibration_without_the_cost_of_a_flush_is_refused_before_anything_runs() -> None:
    rest = {name: value for name, value in COEFFICIENTS.items() if name != "adapter_load.flush_s"}
    with pytest.raises(InputError, match=r"has no adapter_load\.flush_s"):
        run(16, Row(0.0, 0, 4, 3, 3), coefficients=rest)
    run(16, Row(0.0, 0, 4, 3, 3), coefficients=rest, adapter_memory="padded")
