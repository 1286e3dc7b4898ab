"""From a GPU whose kernels were measured to one whose were not.

The least time of a kernel is what its weights and its KV take to be read, or what its arithmetic takes to be done,
whichever is longer. A measured time is scaled by the ratio of these least times on the two GPUs.
"""

from __future__ import annotations

from dataclasses import replace

from simlora.hardware.gpu import Gpu
from simlora.hardware.model import ATTENTION, MLP, ModelShape
from simlora.latency.parts.kernel_times import KernelTimes

LIKE = {
    "a100_40g": "a100_80g",
    "a800_80g": "a100_80g",
    "h100_64g": "h100_80g",
    "l4": "l40s",
    "a10": "l40s",
    "a10g": "l40s",
    "a40": "l40s",
}
"""The measured GPU that each other one is most like: of the same kind of memory.

Between two with HBM, or two with GDDR, decode steps are off by 2 to 19 % at the median, across the kinds by 4 to 32 %
(`python -m experiments.kernels --check`).
"""


def least_s(model: ModelShape, gpu: Gpu, tp: int, tokens: int, logits: int) -> float:
    """Return the least seconds of a pass of `tokens` tokens with empty contexts, of which `logits` are sampled."""
    layer_s = sum(
        _product_s(gpu, _weights(model, (module,)) / tp, tokens) for module in ATTENTION
    ) + _experts_s(model, gpu, tp, tokens)
    return model.layers * layer_s + _product_s(gpu, model.vocab * model.hidden / tp, logits)


def scaled(times: KernelTimes, model: ModelShape, measured: Gpu, gpu: Gpu) -> KernelTimes:
    """Return the kernels as they would be on another GPU with as good kernels."""
    tp = times.tp

    def ratio(tokens: int, logits: int) -> float:
        return least_s(model, gpu, tp, tokens, logits) / least_s(model, measured, tp, tokens, logits)

    reading = measured.memory_bandwidth_bytes_per_s / gpu.memory_bandwidth_bytes_per_s
    return replace(
        times,
        gpu=gpu.name,
        source=f"{times.source} of {measured.name}, by roofline",
        pass_s={tokens: seconds * ratio(tokens, 1) for tokens, seconds in times.pass_s.items()},
        step_s={batch: seconds * ratio(batch, batch) for batch, seconds in times.step_s.items()},
        context_token_s={batch: seconds * reading for batch, seconds in times.context_token_s.items()},
    )


def _experts_s(model: ModelShape, gpu: Gpu, tp: int, tokens: int) -> float:
    """Return the least seconds of a layer's MLP, or of those of its experts that some token uses."""
    weights = _weights(model, MLP) / tp
    if model.experts == 1:
        return _product_s(gpu, weights, tokens)
    used = model.experts * (1 - (1 - model.experts_per_token / model.experts) ** tokens)
    each = tokens * model.experts_per_token / used
    return used * _product_s(gpu, weights, each)


def _weights(model: ModelShape, modules: tuple[str, ...]) -> float:
    shapes = [model.module_shape(module) for module in modules]
    return float(sum(rows * columns for rows, columns in shapes))


def _product_s(gpu: Gpu, weights: float, tokens: float) -> float:
    return max(2 * weights / gpu.memory_bandwidth_bytes_per_s, 2 * weights * tokens / gpu.fp16_flops)
