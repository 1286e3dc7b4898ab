"""Tensor parallelism: S-LoRA's formula, and collectives folded into a calibration's coefficients."""

from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simlora.core.errors import InputError
from simlora.hardware.model import ModelShape
from simlora.latency.calibration import Calibration
from simlora.latency.collectives import all_reduce_elements, collectives, folded, lora_elements
from simlora.latency.iteration import IterationModel
from simlora.latency.kernels import Bgmv, LoraWork, Mbgmv, Merged, PaddedBmm

MODEL = ModelShape("m", layers=4, hidden=256, heads=8, kv_heads=8, head_dim=32, intermediate=512, vocab=100)
BASE = {
    "prefill.intercept_s": 0.02,
    "prefill.per_token_s": 0.001,
    "decode.intercept_s": 0.01,
    "decode.per_sequence_s": 0.002,
    "decode.per_context_token_s": 0.0001,
    "kernels.bgmv.decode.intercept_s": 0.5,
    "kernels.bgmv.decode.per_sequence_max_rank_s": 0.001,
    "kernels.bgmv.prefill.intercept_s": 0.25,
    "kernels.bgmv.prefill.per_token_max_rank_s": 0.0001,
    "kernels.mbgmv.decode.intercept_s": 0.5,
    "kernels.mbgmv.decode.per_rank_sum_s": 0.001,
    "kernels.mbgmv.decode.per_sequence_max_rank_s": 0.01,
    "kernels.mbgmv.prefill.intercept_s": 0.25,
    "kernels.mbgmv.prefill.per_token_rank_s": 0.0001,
    "kernels.padded_bmm.decode.intercept_s": 0.5,
    "kernels.padded_bmm.decode.per_segment_s": 0.25,
    "kernels.padded_bmm.decode.per_segment_max_rank_s": 0.001,
    "kernels.padded_bmm.prefill.intercept_s": 0.25,
    "kernels.padded_bmm.prefill.per_segment_s": 0.25,
    "kernels.padded_bmm.prefill.per_token_max_rank_s": 0.0001,
}
LINK = {
    "collectives.base_all_reduces_per_layer": 2.0,
    "collectives.latency_s": 1e-5,
    "collectives.bytes_per_s": 1e6,
}
WORK = LoraWork(tokens=3, token_rank_sum=80, max_rank=64, adapters=2)

counts = st.integers(1, 100_000)
ranks = st.sampled_from([8, 16, 32, 64, 128])


def calibration(tp: int, **changes: float) -> Calibration:
    return Calibration("mine.yaml", "gpu", "m", tp, {}, BASE | LINK | changes)


@given(st.integers(1, 64), counts, st.sampled_from([4096, 5120, 8192]), ranks)
def test_a_layer_moves_what_slora_says(N, B, h, r):
    assert all_reduce_elements(N, B, h) == float(Fraction(2 * (N - 1) * B * h, N))
    assert lora_elements(N, B, r) == float(Fraction(5 * (N - 1) * B * r, N))


def test_three_gathers_and_one_reduction_make_five():
    gathered = sum(lora_elements(4, 10, 8, (module,)) for module in "qkv")
    assert gathered == 3 * 3 * 10 * 8 / 4
    assert lora_elements(4, 10, 8, ("o",)) == all_reduce_elements(4, 10, 8)
    assert gathered + lora_elements(4, 10, 8, ("o",)) == lora_elements(4, 10, 8)


def test_the_mlps_projections_are_cut_like_those_of_attention():
    assert lora_elements(2, 10, 8, ("gate", "up", "down")) == (1 + 1 + 2) * 10 * 8 / 2


def test_a_token_sends_the_adapters_of_each_of_its_experts():
    experts = replace(MODEL, experts=8, experts_per_token=3)
    ours = collectives(calibration(4))
    attention_s, mlp_s = (ours.lora_token_rank_s(MODEL, names) for names in (("q", "o"), ("gate", "down")))
    assert ours.lora_token_rank_s(experts, ("q", "gate", "o", "down")) == pytest.approx(
        attention_s + 3 * mlp_s
    )
    assert ours.lora_s(experts, 0, ("gate",)) == ours.lora_s(MODEL, 0, ("gate",)), "in calls that they share"


def test_one_gpu_says_nothing_to_itself():
    alone = calibration(1)
    assert folded(alone, MODEL) is alone
    assert all_reduce_elements(1, 100, 4096) == lora_elements(1, 100, 8) == 0


def test_the_base_model_pays_two_all_reduces_a_layer_by_hand():
    before, after = IterationModel(calibration(4)), IterationModel(folded(calibration(4), MODEL))
    calls = 2 * MODEL.layers
    one_token_s = 2 * 3 / 4 * 256 * 2 / 1e6
    assert after.decode_s(3, 500) - before.decode_s(3, 500) == pytest.approx(calls * (1e-5 + 3 * one_token_s))
    assert after.prefill_s(70, 999) - before.prefill_s(70, 999) == pytest.approx(
        calls * (1e-5 + 70 * one_token_s)
    )
    assert after.decode_slope_s(3) == before.decode_slope_s(3), "contexts are not sent"


@pytest.mark.parametrize("kernel, token_ranks", [(Mbgmv, 80), (Bgmv, 3 * 64), (PaddedBmm, 3 * 64)])
def test_adapters_pay_four_collectives_a_layer_by_hand(kernel, token_ranks):
    before, after = kernel(calibration(4)), kernel(folded(calibration(4), MODEL))
    added_s = MODEL.layers * (4 * 1e-5 + token_ranks * 5 * 3 / 4 * 2 / 1e6)
    assert after.decode_s(WORK) - before.decode_s(WORK) == pytest.approx(added_s)
    assert after.prefill_s(WORK) - before.prefill_s(WORK) == pytest.approx(added_s)


@pytest.mark.parametrize("missing", ["decode.per_sequence_s", "prefill.intercept_s"])
def test_communication_does_not_stand_in_for_a_coefficient_of_the_base_model(missing):
    rest = {name: value for name, value in (BASE | LINK).items() if name != missing}
    whole = folded(Calibration("mine.yaml", "gpu", "m", 2, {}, rest), MODEL)
    with pytest.raises(InputError, match=missing):
        IterationModel(whole)


def test_a_kernel_that_was_not_calibrated_stays_so():
    rest = {name: value for name, value in (BASE | LINK).items() if "padded_bmm" not in name}
    whole = folded(Calibration("mine.yaml", "gpu", "m", 2, {}, rest), MODEL)
    with pytest.raises(InputError, match="padded_bmm"):
        PaddedBmm(whole)


def test_no_adapter_no_lora_communication():
    nothing = LoraWork(0, 0, 0, 0)
    whole = folded(calibration(8), MODEL)
    assert Mbgmv(whole).decode_s(nothing) == Bgmv(whole).prefill_s(nothing) == 0
    assert Merged(whole).decode_s(WORK) == 0


def test_lora_communication_can_be_left_out():
    without = folded(calibration(4), MODEL, lora_communication=False)
    assert Mbgmv(without).decode_s(WORK) == Mbgmv(calibration(4)).decode_s(WORK)
    assert IterationModel(without).decode_s(3, 500) == IterationModel(folded(calibration(4), MODEL)).decode_s(
        3, 500
    )


def test_iterations_that_were_measured_whole_have_their_communication_in_them():
    whole = calibration(4, **{"collectives.base_all_reduces_per_layer": 0.0})
    after = folded(whole, MODEL)
    assert IterationModel(after).decode_s(3, 500) == IterationModel(whole).decode_s(3, 500)
    assert Mbgmv(after).decode_s(WORK) > Mbgmv(whole).decode_s(WORK)


@pytest.mark.parametrize("missing", sorted(LINK))
def test_several_gpus_without_collectives_are_an_error_that_names_them(missing):
    rest = {name: value for name, value in (BASE | LINK).items() if name != missing}
    with pytest.raises(InputError, match=rf"mine\.yaml has no {missing}, which this run needs"):
        folded(Calibration("mine.yaml", "gpu", "m", 2, {}, rest), MODEL)


def test_one_all_reduce_a_layer_is_nobodys_tensor_parallelism():
    with pytest.raises(InputError, match="= 1, must be 2, or 0 where its iterations were measured whole"):
        collectives(calibration(2, **{"collectives.base_all_reduces_per_layer": 1.0}))
