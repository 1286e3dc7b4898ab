"""LoRA kernels on other projections than they were measured with."""

from dataclasses import replace

import pytest

from simlora.calibrate.shapes import gpu_named, model_named
from simlora.hardware.model import ATTENTION, MLP, ModelShape
from simlora.latency.adapted import adapted
from simlora.latency.calibration import Calibration
from simlora.latency.parts.composed import composed

MODEL = ModelShape("m", layers=2, hidden=8, heads=2, kv_heads=2, head_dim=4, intermediate=24, vocab=10)
MEASURED = Calibration(
    "test", "gpu", "m", 1, {}, {
        "decode.intercept_s": 1.0,
        "kernels.mbgmv.decode.intercept_s": 2.0,
        "kernels.mbgmv.decode.per_rank_sum_s": 3.0,
        "kernels.padded_bmm.decode.per_segment_s": 4.0,
        "kernels.vllm.intercept_s": 5.0,
        "cpu_lora.per_token_s": 6.0,
        "cpu_lora.tokens_per_core": 16.0,
    },
)  # fmt: skip


@pytest.mark.parametrize("modules", [ATTENTION, ("q", "k", "v"), ()])
def test_adapters_of_attention_are_as_measured(modules):
    assert adapted(MEASURED, MODEL, modules) is MEASURED


@pytest.mark.parametrize("attention", [(), ("q",), ("q", "v"), ("q", "k", "v"), ATTENTION])
def test_adapters_of_more_projections_never_cost_less(attention):
    def cost_s(*modules: str) -> float:
        return adapted(MEASURED, MODEL, modules).coefficients["kernels.mbgmv.decode.per_rank_sum_s"]

    costs_s = [cost_s(*attention, *MLP[:some]) for some in range(0 if attention else 1, len(MLP) + 1)]
    assert costs_s == sorted(costs_s)
    assert cost_s(*attention, "up") <= cost_s(*ATTENTION, "up")


def test_kernels_of_all_projections_are_as_measured():
    """vLLM before V1 has S-LoRA's kernel by another name, whose coefficients are of whichever module there is."""
    found = composed(gpu_named("h100_80g"), model_named("llama_3_1_8b"), 1, "vllm_v0")
    assert found is not None
    assert adapted(found, model_named("llama_3_1_8b"), (*ATTENTION, *MLP)) is found


def test_launches_grow_with_projections_and_the_rest_with_their_widths():
    """Four of 16 and three of 32 wide: 7 / 4 of the launches, 160 / 64 of the weights of a rank."""
    found = adapted(MEASURED, MODEL, (*ATTENTION, *MLP)).coefficients
    assert found == {
        "decode.intercept_s": 1.0,
        "kernels.mbgmv.decode.intercept_s": 2.0 * 7 / 4,
        "kernels.mbgmv.decode.per_rank_sum_s": 3.0 * 160 / 64,
        "kernels.padded_bmm.decode.per_segment_s": 4.0 * 7 / 4,
        "kernels.vllm.intercept_s": 5.0,
        "cpu_lora.per_token_s": 6.0 * 160 / 64,
        "cpu_lora.tokens_per_core": 16.0,
    }


def test_a_token_is_multiplied_with_the_adapters_of_its_own_experts():
    mixture = replace(MODEL, experts=16, experts_per_token=2)
    found = adapted(MEASURED, mixture, ("q", "k", "v", "o", "down")).coefficients
    assert found["kernels.mbgmv.decode.per_rank_sum_s"] == 3.0 * (64 + 2 * 32) / 64
