"""dLoRA's calibrations: what is committed, and that its authors' numbers come out of it."""

from __future__ import annotations

import pytest

from experiments.dlora import calibration
from simlora.config.composing import compose
from simlora.config.making import make
from simlora.hardware.gpu import Gpu
from simlora.latency import calibration as calibrations
from simlora.latency.calibration import Calibration
from simlora.latency.collectives import folded
from simlora.latency.kernels import LoraWork, Mbgmv, OneHotEinsum
from simlora.latency.transfer import AdapterLoad
from simlora.workload.functions import Functions

ALL = (calibration.MEASURED, *calibration.DERIVED)


def load(shape: str, tp: int) -> Calibration:
    return calibrations.load(calibration.name(shape, tp))


SEVEN = load(*calibration.MEASURED)


def test_an_iteration_takes_15_ms_merged_27_ms_unmerged_and_a_switch_20_ms() -> None:
    assert calibration.iteration_s(SEVEN, merged=True) == pytest.approx(15e-3, rel=1e-4)
    assert calibration.iteration_s(SEVEN, merged=False) == pytest.approx(27e-3, rel=1e-4)
    assert calibration.switch_s(SEVEN) == pytest.approx(20e-3, rel=1e-4)


def test_of_27_ms_nearly_all_is_there_for_one_request_too() -> None:
    """Launches: the scheduler of dLoRA reckons with the same 27 ms whatever the batch."""
    alone = OneHotEinsum(SEVEN).decode_s(LoraWork(1, 8, 8, 1))
    full = OneHotEinsum(SEVEN).decode_s(LoraWork(16, 16 * 8, 8, 16))
    assert full == pytest.approx(12e-3, rel=1e-3)
    assert alone / full == pytest.approx(0.97, abs=0.01)


def test_the_contexts_of_a_full_batch_are_those_of_the_workload_s_decode_steps() -> None:
    config, _ = compose(["workload=functions", "workload.duration_s=10000"])
    trace = make(config, "workload", Functions).build(1)
    prompts, outputs = trace.prompt_tokens, trace.output_tokens
    contexts = float((outputs * (prompts + outputs / 2)).sum() / outputs.sum())
    assert contexts == pytest.approx(calibration.CONTEXT_TOKENS, rel=0.02)


def test_where_the_gpu_is_the_bottleneck_the_adapters_take_what_figure_5_says() -> None:
    assert calibration.prefill_share(SEVEN, adapters=16) == pytest.approx(0.389, rel=1e-4)
    assert calibration.prefill_share(SEVEN, adapters=8) == pytest.approx(0.389 / 2, rel=1e-4)


def test_that_is_what_writing_and_reading_the_one_hot_inputs_takes() -> None:
    config, _ = compose(["gpu=a800_80g"])
    bandwidth = make(config, "gpu", Gpu).memory_bandwidth_bytes_per_s
    product_s = 8 * SEVEN.need("kernels.one_hot_einsum.prefill.per_token_adapter_max_rank_s")
    copied_s = calibration.one_hot_bytes(calibration.setting(*calibration.MEASURED)) / bandwidth
    assert product_s / copied_s == pytest.approx(1, abs=0.03)


@pytest.mark.parametrize("shape, tp", ALL)
def test_the_shape_is_the_plain_calibration_s_and_so_are_the_kernels_of_others(shape: str, tp: int) -> None:
    ours, plain = load(shape, tp), calibrations.load(calibration.name(shape, tp, ""))
    own = ("intercept_s", "merge.", "adapter_load.")
    for name, value in plain.coefficients.items():
        if not any(part in name for part in own):
            assert ours.coefficients[name] == pytest.approx(value, rel=1e-5), name
    work = LoraWork(16, 128, 8, 8)
    assert Mbgmv(ours).decode_s(work) == pytest.approx(Mbgmv(plain).decode_s(work))


@pytest.mark.parametrize("shape, tp", ALL)
def test_an_adapter_is_loaded_at_the_link_s_rate(shape: str, tp: int) -> None:
    load_s = AdapterLoad(load(shape, tp)).load_s
    assert (load_s(32_000_000) - load_s(0)) == pytest.approx(1.0e-3, rel=0.02)


def test_larger_models_take_longer_by_their_layers_and_weights() -> None:
    seven, thirteen, seventy = (load(shape, tp) for shape, tp in ALL)
    merged_ms = [1e3 * calibration.iteration_s(each, True) for each in (seven, thirteen, seventy)]
    assert merged_ms == pytest.approx([15, 25.6, 49.2], abs=0.05)
    lora_ms = [1e3 * calibration.iteration_s(each, False) for each in (seven, thirteen, seventy)]
    assert [lora - base for lora, base in zip(lora_ms, merged_ms, strict=True)] == pytest.approx(
        [12, 12 * 40 / 32, 12 * 80 / 32], rel=0.01
    )
    # 6.5 and 12.7 billion weights are adapted, and a quarter of 68.5.
    switched = [calibration.switch_s(each) for each in (seven, thirteen, seventy)]
    assert switched == pytest.approx([20e-3, 20e-3 * 12.69 / 6.476, 20e-3 * 68.45 / 4 / 6.476], rel=0.001)


def test_the_kernel_has_no_collectives_of_its_own_on_several_gpus() -> None:
    seventy = load("llama_2_70b", 4)
    shape = calibration.setting("llama_2_70b", 4).model
    work = LoraWork(16, 128, 8, 16)
    assert OneHotEinsum(folded(seventy, shape)).decode_s(work) == OneHotEinsum(seventy).decode_s(work)
    assert Mbgmv(folded(seventy, shape)).decode_s(work) > Mbgmv(seventy).decode_s(work)
