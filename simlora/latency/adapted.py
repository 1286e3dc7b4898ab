"""LoRA kernels on other projections than they were measured with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from simlora.hardware.model import ATTENTION, MLP, ModelShape
from simlora.latency.calibration import Calibration

KERNELS = ("bgmv", "mbgmv", "padded_bmm")
"""Kernels whose coefficients are of adapters of attention only, as S-LoRA, Punica and CaraServe have them."""
CPU = "cpu_lora"
LAUNCHES = ("intercept_s", "per_segment_s", "sync_s")
"""Coefficients that count launches; the others count bytes or tokens."""
FIXED = "cpu_lora.tokens_per_core"
LORA_MODULES = "lora_modules"
"""In the provenance of a calibration: `all` where its LoRA kernels were made for all projections."""


def adapted(calibration: Calibration, model: ModelShape, target_modules: Sequence[str]) -> Calibration:
    """Return the calibration whose LoRA kernels also adapt the MLP, if `target_modules` name some of it.

    Launches grow with the number of projections, the rest with their widths: A and B of a rank have in + out weights.
    Attention costs what was measured, whichever of its projections are adapted, and the MLP is added in proportion.
    CPU cores that help take longer likewise. A token of a mixture of experts is multiplied with the adapters of its own
    experts. vLLM's kernels and dLoRA's were measured with all projections, and stay as they are, and so do those whose
    provenance says that (LORA_MODULES).
    """
    attention = ATTENTION if any(module in ATTENTION for module in target_modules) else ()
    mlp = [module for module in target_modules if module in MLP]
    if not mlp or not scales(calibration):
        return calibration
    calls = (len(attention) + len(mlp)) / len(ATTENTION)
    width = _width(model, attention) + model.experts_per_token * _width(model, mlp)
    widths = width / _width(model, ATTENTION)
    coefficients = dict(calibration.coefficients)
    for name in coefficients:
        if (_of_attention(name) or name.startswith(f"{CPU}.")) and name != FIXED:
            coefficients[name] *= calls if name.endswith(LAUNCHES) else widths
    return replace(calibration, coefficients=coefficients)


def scales(calibration: Calibration) -> bool:
    """Return whether the LoRA kernels of a calibration cost more the more projections are adapted."""
    return calibration.provenance.get(LORA_MODULES) != "all" and any(
        map(_of_attention, calibration.coefficients)
    )


def _of_attention(name: str) -> bool:
    """Return whether a coefficient is of a kernel that was measured on attention, as kernels.bgmv.decode.call_s."""
    section, kernel, *_ = f"{name}.".split(".")
    return section == "kernels" and kernel in KERNELS


def _width(model: ModelShape, modules: Sequence[str]) -> int:
    return sum(sum(model.module_shape(module)) for module in modules)
