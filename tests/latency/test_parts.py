"""Calibrations composed of parts: what each part adds, and what is said of them."""

from __future__ import annotations

from itertools import pairwise

import pytest

from simlora.calibrate.roofline import LIKE, scaled
from simlora.calibrate.shapes import gpu_named, model_named
from simlora.engine.building import HostTime
from simlora.latency import calibration as calibrations
from simlora.latency.iteration import IterationModel
from simlora.latency.kernels import LoraWork, Vllm
from simlora.latency.parts import kernel_times
from simlora.latency.parts.composed import composed, engines, warning
from simlora.latency.parts.kernel_times import BATCHES, TOKENS, shipped

L40S, MISTRAL = gpu_named("l40s"), model_named("mistral_7b")


def mistral(tp=1):
    found = composed(L40S, MISTRAL, tp, "vllm")
    assert found is not None
    return found


def test_a_decode_step_is_the_kernels_and_the_hosts_time_of_a_step_and_of_each_sequence():
    times, host = shipped()[("l40s", "mistral_7b", 1, "vllm")], engines()["vllm"]["host"]
    step_s = IterationModel(mistral()).decode_s(64, 1000)
    expected_s = (
        times.step_s[64] + 1000 * times.context_token_s[64] + host["step_s"] + 64 * host["sequence_s"]
    )
    assert step_s == pytest.approx(expected_s)
    assert HostTime(mistral()).host_s(64) == pytest.approx(host["step_s"] + 64 * host["sequence_s"])


def test_a_pass_that_does_both_has_the_host_time_of_its_sequences_once():
    iteration, host = IterationModel(mistral()), engines()["vllm"]["host"]
    alone_s = iteration.prefill_s(512, 0)
    assert iteration.mixed_s(448, 0, 64, 0) == pytest.approx(alone_s + 64 * host["sequence_s"])


def test_lora_kernels_are_launched_by_every_layer():
    work = LoraWork(64, 64 * 16, 16, 8)
    small, large = composed(L40S, MISTRAL, 1, "vllm"), composed(L40S, model_named("qwen3_14b"), 1, "vllm")
    assert small is not None
    assert large is not None
    ratio = Vllm(large, 8, 16).decode_s(work) / Vllm(small, 8, 16).decode_s(work)
    assert ratio == pytest.approx(40 / 32)


@pytest.mark.parametrize(
    "leaf", ["per_slot_s", "per_slot_rank_s", "few_tokens.per_adapter_s", "few_tokens.per_adapter_rank_s"]
)
def test_they_carry_over_to_a_model_that_was_fitted_by_itself(leaf):
    """Llama-3.1-8B's per layer are those of Qwen-2.5-7B to a tenth."""
    each_s = engines()["vllm"]["lora"][leaf]
    own = calibrations.load("h100_64g-qwen_2_5_7b-tp1-vllm").coefficients[f"kernels.vllm.{leaf}"]
    assert 28 * each_s == pytest.approx(own, rel=0.1)


def test_several_gpus_take_their_collectives_from_the_kernels():
    assert mistral(tp=2).coefficients["collectives.base_all_reduces_per_layer"] == 0
    assert IterationModel(mistral(tp=2)).decode_s(64, 0) < IterationModel(mistral()).decode_s(64, 0)


def test_what_has_no_parts_has_no_calibration():
    assert composed(L40S, MISTRAL, 1, None) is None
    assert composed(L40S, MISTRAL, 1, "punica") is None
    assert composed(gpu_named("npu_64g"), MISTRAL, 1, "vllm") is None


def test_what_was_scaled_says_so():
    a10g = composed(gpu_named("a10g"), MISTRAL, 1, "vllm")
    assert a10g is not None
    assert "by roofline" in warning(a10g)
    assert "by roofline" not in warning(mistral())
    assert "off by 14 %" in warning(mistral())


def test_the_table_reads_as_it_was_written():
    assert kernel_times.written(shipped().values()) == kernel_times.TABLE.read_text(encoding="utf-8")


def test_kernels_take_time_and_more_work_saves_no_more_than_a_quarter_of_it():
    for times in shipped().values():
        for seconds, counts in ((times.pass_s, TOKENS), (times.step_s, BATCHES)):
            found = [seconds[count] for count in counts]
            assert min(found) > 0, times.key
            assert all(after > 0.75 * before for before, after in pairwise(found)), times.key


def test_a_roofline_scales_reading_by_bandwidth_and_arithmetic_by_flops():
    times, gpu = shipped()[("a100_80g", "llama_2_7b", 1, "vllm")], gpu_named("a100_80g")
    model, other = model_named("llama_2_7b"), gpu_named("a100_40g")
    found = scaled(times, model, gpu, other)
    slower = gpu.memory_bandwidth_bytes_per_s / other.memory_bandwidth_bytes_per_s
    assert found.step_s[1] == pytest.approx(times.step_s[1] * slower)
    assert found.context_token_s[64] == pytest.approx(times.context_token_s[64] * slower)
    assert found.pass_s[2048] == pytest.approx(times.pass_s[2048], rel=0.01)  # as much arithmetic a second
    assert scaled(times, model, gpu, gpu).step_s == times.step_s


@pytest.mark.parametrize("gpu, like", LIKE.items())
def test_a_gpu_is_like_one_of_its_own_kind_of_memory(gpu, like):
    fast = 1e12
    known, other = gpu_named(like), gpu_named(gpu)
    assert (known.memory_bandwidth_bytes_per_s > fast) == (other.memory_bandwidth_bytes_per_s > fast)
