"""The kernels of a model on a GPU, measured or scaled from a GPU that was."""

from __future__ import annotations

from simlora.calibrate import aiconfigurator
from simlora.calibrate.roofline import LIKE, scaled
from simlora.calibrate.shapes import gpu_named
from simlora.core.errors import InputError
from simlora.hardware.gpu import Gpu
from simlora.hardware.model import ModelShape
from simlora.latency.parts.kernel_times import KernelTimes


def kernel_times(gpu: Gpu, model: ModelShape, tp: int, engine: str) -> KernelTimes:
    """Return the kernels of a model on `tp` GPUs. Raises InputError if no GPU like it was measured."""
    if gpu.name in aiconfigurator.SYSTEMS:
        return aiconfigurator.measured(gpu.name, model, tp, engine)
    if gpu.name not in LIKE:
        known = ", ".join([*aiconfigurator.SYSTEMS, *LIKE])
        raise InputError(
            f"the kernels of {gpu.name} are not known, nor those of a GPU like it (known are {known}); --like names one"
        )
    like = gpu_named(LIKE[gpu.name])
    return scaled(aiconfigurator.measured(like.name, model, tp, engine), model, like, gpu)
