"""NVIDIA's kernel times, which calibrations are composed of, against iterations that a real H100 took."""

from __future__ import annotations

import pytest

from experiments.kernels.measured import rows


@pytest.mark.parametrize("model", ["llama_2_7b", "llama_2_13b", "llama_3_1_8b"])
def test_decode_steps_on_an_h100_take_what_the_kernels_take_and_up_to_two_milliseconds_of_host(
    model: str,
) -> None:
    steps = [row for row in rows(model) if row[0] == "decode"]
    assert len(steps) >= 3
    for _, _, _, measured_s, kernels_s in steps:
        assert -0.0005 < measured_s - kernels_s < 0.002
