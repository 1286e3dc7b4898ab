"""LoRA kernels on other projections than they were measured with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from simlora.hardware.model import ATTENTION, MLP, ModelShape
from simlora.latency.calibration import Calibration

KERNELS = ("bgmv", "mbgmv", "padded_bmm")
"""Kernels whose coefficients are of adapters of attention only, as S-LoRA, Punica and CaraServe have them."""
LAUNCHES = ("intercept_s", "per_segment_s")
"""Coefficients that count launches; the others count bytes or tokens."""


def adapted(calibration: Calibration, model: ModelShape, target_modules: Sequence[str]) -> Calibration:
    """Return the calibration whose LoRA kernels also adapt the MLP, if `target_modules` name some of it.

    Launches grow with the number of projections, the rest with their widths: A and B of a rank have in + out weights.
    A token of a mixture of experts is multiplied with the adapters of its own experts. vLLM's kernels and dLoRA's were
    measured with all projections, and stay as they are.
    """
    attention = [module for module in target_modules if module in ATTENTION]
    mlp = [module for module in target_modules if module in MLP]
    if not mlp:
        return calibration
    measured = attention or list(ATTENTION)
    calls = (len(attention) + len(mlp)) / len(measured)
    widths = (_width(model, attention) + model.experts_per_token * _width(model, mlp)) / _width(
        model, measured
    )
    coefficients = dict(calibration.coefficients)
    for name in coefficients:
        section, _, kernel = name.rpartition(".")[0].partition(".")
        if section == "kernels" and kernel.partition(".")[0] in KERNELS:
            coefficients[name] *= calls if name.endswith(LAUNCHES) else widths
    return replace(calibration, coefficients=coefficients)


def _width(model: ModelShape, modules: Sequence[str]) -> int:
    return sum(sum(model.module_shape(module)) for module in modules)
