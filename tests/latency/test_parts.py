"""Calibrations composed of parts: what each part adds, and what is said of them."""

from dataclasses import replace
from itertools import pairwise

import pytest

from simlora.calibrate.roofline import LIKE, scaled
from simlora.calibrate.shapes import gpu_named, model_named
from simlora.engine.building import HostTime
from simlora.hardware.model import ATTENTION, MLP
from simlora.latency import calibration as calibrations
from simlora.latency.iteration import IterationModel
from simlora.latency.kernels import Bgmv, LoraWork, Vllm
from simlora.latency.parts import kernel_times
from simlora.latency.parts.composed import composed, derivable, engines, error_of, warning
from simlora.latency.parts.kernel_times import BATCHES, SAME_SHAPE, TOKENS, shipped

L40S, MISTRAL = gpu_named("l40s"), model_named("mistral_7b")


def host_of_vllm(gpu):
    parts = engines()["vllm"]
    return {name: each_s * parts["host_speed"] / gpu.host_speed for name, each_s in parts["host"].items()}


def made(gpu, model, tp=1, engine="vllm", apart=False):
    """The calibration of these parts, which there is."""
    found = composed(gpu_named(gpu), model_named(model), tp, engine, apart)
    assert found is not None
    return found


def mistral(tp=1):
    return made("l40s", "mistral_7b", tp)


def slora(gpu="h100_64g", model="llama_2_7b", tp=1):
    return made(gpu, model, tp, None)


def test_a_decode_step_is_the_kernels_and_the_hosts_time_of_a_step_and_of_each_sequence():
    times, host = shipped()[("l40s", "mistral_7b", 1, "vllm")], host_of_vllm(L40S)
    step_s = IterationModel(mistral()).decode_s(64, 1000)
    expected_s = (
        times.step_s[64] + 1000 * times.context_token_s[64] + host["step_s"] + 64 * host["sequence_s"]
    )
    assert step_s == pytest.approx(expected_s)
    assert HostTime(mistral()).host_s(64) == pytest.approx(host["step_s"] + 64 * host["sequence_s"])


def test_a_pass_that_does_both_has_the_host_time_of_its_sequences_once():
    iteration, host = IterationModel(mistral()), host_of_vllm(L40S)
    alone_s = iteration.prefill_s(512, 0)
    assert iteration.mixed_s(448, 0, 64, 0) == pytest.approx(alone_s + 64 * host["sequence_s"])


def test_lora_kernels_are_launched_by_every_layer():
    work = LoraWork(64, 64 * 16, 16, 8)
    large = made("l40s", "qwen3_14b")
    ratio = Vllm(large, 8, 16).decode_s(work) / Vllm(mistral(), 8, 16).decode_s(work)
    assert ratio == pytest.approx(40 / 32)


@pytest.mark.parametrize("work, slots, rank", [((64, 16), 32, 16), ((256, 64), 96, 32), ((16, 8), 192, 8)])
def test_lora_kernels_of_one_model_are_those_of_another_one_to_an_eighth(work, slots, rank):
    """Qwen-2.5-7B has the programs per slot and per token that its own hours say; the parts have Llama-3.1-8B's."""
    tokens, adapters = work
    step = LoraWork(tokens, 0, 0, adapters)
    own = calibrations.load("h100_64g-qwen_2_5_7b-tp1-vllm")
    carried = made("h100_64g", "qwen_2_5_7b")
    assert Vllm(carried, slots, rank).decode_s(step) == pytest.approx(
        Vllm(own, slots, rank).decode_s(step), rel=1 / 8
    )


def test_several_gpus_take_their_collectives_from_the_kernels():
    assert mistral(tp=2).coefficients["collectives.base_all_reduces_per_layer"] == 0
    assert IterationModel(mistral(tp=2)).decode_s(64, 0) < IterationModel(mistral()).decode_s(64, 0)


def test_what_has_no_parts_has_no_calibration():
    assert composed(L40S, MISTRAL, 1, "punica") is None
    assert composed(gpu_named("npu_64g"), MISTRAL, 1, None) is None
    assert composed(gpu_named("npu_64g"), MISTRAL, 1, "vllm") is None


def test_a_step_of_slora_takes_its_launches_until_the_kernels_take_longer():
    gpu, parts = gpu_named("h100_64g"), engines()["slora"]
    times = shipped()[("h100_64g", "llama_2_7b", 1, "vllm")]
    host = {name: each_s / gpu.host_speed for name, each_s in parts["host"].items()}
    iteration = IterationModel(slora())
    few_s, many_s = (iteration.decode_s(batch, 0) - batch * host["sequence_s"] for batch in (1, 192))
    assert times.step_s[1] < host["launch_s"] < times.step_s[192]
    assert few_s == pytest.approx(host["launch_s"] + host["wait_s"])
    assert many_s == pytest.approx(times.step_s[192] + host["wait_s"])


def test_every_token_of_a_prompt_costs_vllm_v0_what_a_sequence_of_a_step_does():
    own = made("h100_64g", "llama_2_7b", engine="vllm_v0")
    kernel = Bgmv(own)
    work = LoraWork(250, 250 * 16, 16, 1)
    assert kernel.prefill_s(work) == pytest.approx(kernel.decode_s(work))
    seven = model_named("llama_2_7b")
    four_bytes, all_bytes = seven.adapter_bytes(1), seven.adapter_bytes(1, (*ATTENTION, *MLP))
    slora_s = Bgmv(calibrations.load("a100_80g-llama_7b-tp1")).decode_s(work)
    ratio = all_bytes / four_bytes * 2039 / 2020
    launch_s = own.need("kernels.bgmv.decode.intercept_s")
    assert kernel.decode_s(work) - launch_s == pytest.approx((slora_s - 0.00037203) * ratio, rel=1e-3)


def test_the_host_of_vllm_v0_is_the_share_of_the_time_that_was_published():
    kernels = shipped()[("h100_80g", "llama_3_1_8b", 1, "vllm")]
    kernels_s = kernels.step_s[256] + 256 * 300 * kernels.context_token_s[256]
    host = engines()["vllm_v0"]["host"]
    host_s = host["step_s"] + 256 * host["sequence_s"]
    assert host_s / (host_s + kernels_s) == pytest.approx(0.62, abs=0.005)


def test_what_slora_reads_goes_by_bytes_over_bandwidth_and_not_by_the_host():
    per_token = "decode.per_context_token_s"
    here, there = slora().coefficients[per_token], slora("a100_40g").coefficients[per_token]
    assert here / there == pytest.approx(1555 / 2020, rel=1e-3)
    grouped = slora(model="llama_3_1_8b").coefficients[per_token]
    assert grouped == pytest.approx(here / 4), "8 heads of keys and values instead of 32"
    assert slora(tp=4).coefficients[per_token] == pytest.approx(here / 4)


def test_a_faster_host_launches_and_loads_faster():
    here, there = slora().coefficients, slora("a100_80g").coefficients
    for name in ("kernels.mbgmv.decode.intercept_s", "adapter_load.latency_s"):
        assert there[name] / here[name] == pytest.approx(gpu_named("h100_64g").host_speed)
    assert here["adapter_load.bytes_per_s"] / there["adapter_load.bytes_per_s"] == pytest.approx(1.49)


def test_slora_has_the_coefficients_of_every_kernel_that_its_systems_use():
    measured = calibrations.load("a100_80g-llama_7b-tp1").coefficients
    needed = {name for name in measured if name.startswith(("kernels.", "merge.", "adapter_load."))}
    own = set(slora("a100_80g").coefficients)
    assert needed - own == {
        "adapter_load.flush_s",
        "kernels.mbgmv.decode.per_sequence_s",
        "kernels.bgmv.decode.per_sequence_s",
    }


@pytest.mark.parametrize("model, like", SAME_SHAPE.items())
def test_models_of_the_same_shape_have_the_same_kernels(model, like):
    assert replace(model_named(model), name=like) == model_named(like)
    assert slora(model=model).coefficients == slora(model=like).coefficients


def test_what_was_scaled_says_so():
    a10g = made("a10g", "mistral_7b")
    assert "by roofline" in warning(a10g)
    assert "by roofline" not in warning(mistral())
    assert "off by 14 %" in warning(mistral())
    assert "off by 18 %" in warning(a10g), "of the host and of kernels by roofline, as independent errors"
    assert error_of("a10g", "llama_3_1_8b", 1, "vllm") == a10g.provenance["error"]
    assert all(error_of(*of)["median"] > 0 for of in derivable().values())


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


@pytest.mark.parametrize("engine", ["vllm", "vllm_v0", "slora"])
def test_experts_that_are_apart_have_kernels_and_a_name_of_their_own(engine):
    apart, slices = (made("h100_80g", "qwen3_30b_a3b", 4, engine, each) for each in (True, False))
    end = "" if engine == "slora" else f"-{engine}"
    assert apart.path == f"h100_80g-qwen3_30b_a3b-tp4ep{end}"
    assert slices.path == f"h100_80g-qwen3_30b_a3b-tp4{end}"
    assert IterationModel(apart).prefill_s(8192, 0) > IterationModel(slices).prefill_s(8192, 0)
    assert derivable()[apart.path] == ("h100_80g", "qwen3_30b_a3b", 4, engine, True)
    assert error_of(*derivable()[apart.path]) == error_of(*derivable()[slices.path])


def test_only_mixtures_on_several_gpus_have_experts_apart():
    apart = {(model, tp) for _, model, tp, _, apart in derivable().values() if apart}
    assert {model for model, _ in apart} == {"qwen3_30b_a3b", "mixtral_8x7b"}
    assert min(tp for _, tp in apart) == 2
