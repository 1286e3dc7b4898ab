"""dLoRA's calibrations: what is committed, and that its authors' numbers come out of it."""

from __future__ import annotations

import pytest

from experiments.dlora import calibration
from simlora.latency import calibration as calibrations
from simlora.latency.calibration import Calibration

ALL = (calibration.MEASURED, *calibration.DERIVED)


def load(shape: str, tp: int) -> Calibration:
    return calibrations.load(calibration.name(shape, tp))


SEVEN = load(*calibration.MEASURED)


def test_an_iteration_takes_15_ms_merged_27_ms_unmerged_and_a_switch_20_ms() -> None:
    assert calibration.iteration_s(SEVEN, merged=True) == pytest.approx(15e-3, rel=1e-4)
    assert calibration.iteration_s(SEVEN, merged=False) == pytest.approx(27e-3, rel=1e-4)
    assert calibration.switch_s(SEVEN) == pytest.approx(20e-3, rel=1e-4)


def test_where_the_gpu_is_the_bottleneck_the_adapters_take_what_figure_5_says() -> None:
    assert calibration.prefill_share(SEVEN, adapters=16) == pytest.approx(0.389, rel=1e-4)
    assert calibration.prefill_share(SEVEN, adapters=8) == pytest.approx(0.389 / 2, rel=1e-4)


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
