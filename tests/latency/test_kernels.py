"""What the LoRA kernels add, against numbers worked out by hand."""

import re
from functools import partial

import pytest

from simlora.core.errors import InputError
from simlora.latency.calibration import Calibration
from simlora.latency.kernels import (
    Bgmv,
    LoraWork,
    Mbgmv,
    MbgmvMax,
    Merged,
    OneHotEinsum,
    PaddedBmm,
    Vllm,
)

COEFFICIENTS = {
    "kernels.bgmv.decode.intercept_s": 0.5,
    "kernels.bgmv.decode.per_sequence_max_rank_s": 0.001,
    "kernels.bgmv.prefill.intercept_s": 0.25,
    "kernels.bgmv.prefill.per_token_max_rank_s": 0.0001,
    "kernels.mbgmv.decode.intercept_s": 0.5,
    "kernels.mbgmv.decode.per_rank_sum_s": 0.001,
    "kernels.mbgmv.prefill.intercept_s": 0.25,
    "kernels.mbgmv.prefill.per_token_rank_s": 0.0001,
    "kernels.one_hot_einsum.decode.intercept_s": 0.5,
    "kernels.one_hot_einsum.decode.per_sequence_adapter_max_rank_s": 0.001,
    "kernels.one_hot_einsum.prefill.intercept_s": 0.25,
    "kernels.one_hot_einsum.prefill.per_token_adapter_max_rank_s": 0.0001,
    "kernels.padded_bmm.decode.intercept_s": 0.5,
    "kernels.padded_bmm.decode.per_segment_s": 0.02,
    "kernels.padded_bmm.decode.per_segment_max_rank_s": 0.001,
    "kernels.padded_bmm.prefill.intercept_s": 0.25,
    "kernels.padded_bmm.prefill.per_segment_s": 0.03,
    "kernels.padded_bmm.prefill.per_token_max_rank_s": 0.0001,
    "kernels.vllm.intercept_s": 0.5,
    "kernels.vllm.per_slot_s": 0.01,
    "kernels.vllm.per_slot_rank_s": 0.001,
    "kernels.vllm.per_adapter_s": 0.1,
    "kernels.vllm.few_tokens.per_adapter_s": 0.2,
    "kernels.vllm.few_tokens.per_adapter_rank_s": 0.002,
    "kernels.vllm.per_token_s": 0.003,
}
DECODE = LoraWork(tokens=3, token_rank_sum=8 + 8 + 64, max_rank=64, adapters=2, segments=3)
PREFILL = LoraWork(tokens=110, token_rank_sum=100 * 8 + 10 * 64, max_rank=64, adapters=2, segments=2)
NO_ADAPTER = LoraWork(tokens=0, token_rank_sum=0, max_rank=0, adapters=0)


def changed(work: LoraWork, **changes: int) -> LoraWork:
    """The same work with other numbers."""
    names = ("tokens", "token_rank_sum", "max_rank", "adapters", "segments")
    return LoraWork(**{name: getattr(work, name) for name in names} | changes)


def calibration(**extra: float) -> Calibration:
    return Calibration("test", "gpu", "model", 1, {}, COEFFICIENTS | extra)


@pytest.mark.parametrize(
    "kernel, decode_s, prefill_s",
    [
        (Bgmv, 0.5 + 0.001 * 3 * 64, 0.25 + 0.0001 * 110 * 64),
        (Mbgmv, 0.5 + 0.001 * 80, 0.25 + 0.0001 * 1440),
        (OneHotEinsum, 0.5 + 0.001 * 3 * 2 * 64, 0.25 + 0.0001 * 110 * 2 * 64),
        (PaddedBmm, 0.5 + (0.02 + 0.001 * 64) * 3, 0.25 + 0.03 * 2 + 0.0001 * 110 * 64),
        (Merged, 0.0, 0.0),
    ],
)
def test_by_hand(kernel, decode_s, prefill_s):
    one = kernel(calibration())
    assert one.decode_s(DECODE) == pytest.approx(decode_s)
    assert one.prefill_s(PREFILL) == pytest.approx(prefill_s)


def test_mbgmv_also_pays_for_the_highest_rank_where_a_calibration_says_so():
    one = Mbgmv(calibration(**{"kernels.mbgmv.decode.per_sequence_max_rank_s": 0.01}))
    assert one.decode_s(DECODE) == pytest.approx(0.5 + 0.001 * 80 + 0.01 * 3 * 64)


def test_of_one_rank_only_bgmv_and_mbgmv_cost_the_same():
    work = LoraWork(tokens=5, token_rank_sum=5 * 16, max_rank=16, adapters=3)
    assert Bgmv(calibration()).decode_s(work) == Mbgmv(calibration()).decode_s(work)
    assert Bgmv(calibration()).prefill_s(work) == Mbgmv(calibration()).prefill_s(work)


@pytest.mark.parametrize(
    "kernel, name",
    [(Bgmv, "bgmv"), (Mbgmv, "mbgmv"), (OneHotEinsum, "one_hot_einsum"), (PaddedBmm, "padded_bmm")],
)
def test_a_missing_coefficient_is_named_and_never_zero(kernel, name):
    own = {key: value for key, value in COEFFICIENTS.items() if key.startswith(f"kernels.{name}.")}
    assert kernel(Calibration("mine.yaml", "gpu", "model", 1, {}, own)), "it needs no others"
    for missing in own:
        rest = {key: value for key, value in own.items() if key != missing}
        with pytest.raises(InputError, match=rf"mine\.yaml has no {missing}"):
            kernel(Calibration("mine.yaml", "gpu", "model", 1, {}, rest))


def test_merged_adapters_need_no_coefficients():
    Merged(Calibration("mine.yaml", "gpu", "model", 1, {}, {}))


@pytest.mark.parametrize("kernel", [Bgmv, Merged, OneHotEinsum, partial(Vllm, slots=8, max_lora_rank=32)])
def test_a_pass_of_one_kind_takes_what_that_takes(kernel):
    one = kernel(calibration())
    assert one.mixed_s(PREFILL, NO_ADAPTER) == one.prefill_s(PREFILL)
    assert one.mixed_s(NO_ADAPTER, DECODE) == one.decode_s(DECODE)
    assert one.mixed_s(NO_ADAPTER, NO_ADAPTER) == 0.0


@pytest.mark.parametrize("kernel, saved_s", [(Bgmv, 0.25), (Mbgmv, 0.25), (PaddedBmm, 0.25), (Merged, 0.0)])
def test_a_pass_that_does_both_is_launched_once(kernel, saved_s):
    """Of the fixed costs 0.5 and 0.25 the smaller one is saved, where there is work of both."""
    one = kernel(calibration())
    assert one.mixed_s(PREFILL, DECODE) == pytest.approx(
        one.prefill_s(PREFILL) + one.decode_s(DECODE) - saved_s
    )


def test_one_hot_einsum_multiplies_the_tokens_of_both_with_the_adapters_of_both():
    one = OneHotEinsum(calibration())
    prefill = changed(PREFILL, adapters=1, max_rank=8)
    both = changed(DECODE, adapters=3)
    products_s = (0.0001 * 110 + 0.001 * 3) * 3 * 64
    assert one.mixed_s(prefill, both) == pytest.approx(0.5 + products_s)
    assert [kernel.counts_adapters for kernel in (OneHotEinsum, Bgmv)] == [True, False]
    assert [kernel.counts_segments for kernel in (PaddedBmm, Bgmv)] == [True, False]
    assert one.mixed_s(both, changed(prefill, adapters=3)) == pytest.approx(
        0.5 + (0.0001 * 3 + 0.001 * 110) * 3 * 64
    )


def test_vllm_pays_for_slots_adapters_and_tokens_of_slots_as_wide_as_the_highest_rank_allowed():
    kernel = Vllm(calibration(), slots=8, max_lora_rank=32)
    adapter_s = 0.2 + 0.002 * 32
    # 3 tokens begin one block of 32 and one of 64; 110 tokens four and two.
    few_s = 0.5 + 8 * (0.032 * 1 + 0.01 * 1) + 2 * adapter_s + 3 * 0.003
    more_s = 0.5 + 8 * (0.032 * 4 + 0.01 * 2) + 2 * adapter_s + 110 * 0.003
    assert kernel.decode_s(DECODE) == pytest.approx(few_s)
    assert kernel.prefill_s(PREFILL) == pytest.approx(more_s)
    assert kernel.decode_s(changed(DECODE, max_rank=8, token_rank_sum=24)) == kernel.decode_s(DECODE)


def test_vllms_shrink_splits_its_sums_less_from_128_tokens_on():
    kernel = Vllm(calibration(), slots=8, max_lora_rank=32)
    # 128 tokens: four blocks of 32, each an eighth of the programs; two of 64; adapters cost the same at any rank.
    many_s = 0.5 + 8 * (0.032 * 4 / 8 + 0.01 * 2) + 2 * 0.1 + 128 * 0.003
    assert kernel.decode_s(changed(DECODE, tokens=128)) == pytest.approx(many_s)
    assert kernel.decode_s(changed(DECODE, tokens=127)) > kernel.decode_s(changed(DECODE, tokens=128))


def test_vllms_pass_of_both_is_one_launch_over_the_adapters_of_both():
    kernel = Vllm(calibration(), slots=8, max_lora_rank=32)
    both = changed(DECODE, adapters=3)
    assert kernel.mixed_s(PREFILL, both) == pytest.approx(kernel.decode_s(changed(both, tokens=3 + 110)))


def test_vllms_tiles_are_sixteen_wide():
    costs = [Vllm(calibration(), slots=8, max_lora_rank=rank).decode_s(DECODE) for rank in (8, 16, 24, 32)]
    assert costs[0] == costs[1] < costs[2] == costs[3]


@pytest.mark.parametrize(
    "slots, rank, key",
    [
        (0, 16, "kernel.slots (replica.max_loras) is 0"),
        (None, 16, "kernel.slots (replica.max_loras) is empty"),
        (4, None, "kernel.max_lora_rank is"),
    ],
)
def test_vllm_needs_slots_and_their_rank(slots, rank, key):
    with pytest.raises(InputError, match=re.escape(key)):
        Vllm(calibration(), slots=slots, max_lora_rank=rank)


def test_the_other_reading_of_mbgmv_counts_the_highest_rank_for_everybody():
    own, highest = Mbgmv(calibration()), MbgmvMax(calibration())
    assert highest.decode_s(DECODE) == pytest.approx(0.5 + 0.001 * 3 * 64)
    assert highest.prefill_s(PREFILL) == pytest.approx(0.25 + 0.0001 * 110 * 64)
    equal = LoraWork(tokens=3, token_rank_sum=3 * 64, max_rank=64, adapters=2, segments=3)
    assert highest.decode_s(equal) == own.decode_s(equal)
