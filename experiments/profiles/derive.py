"""Coefficients that were not measured where they are needed: LoRA kernels, loads and merges, links."""

from __future__ import annotations

from experiments.profiles.scaling import Setting
from simlora.hardware.model import ModelShape
from simlora.latency.calibration import Calibration

LORA = ("kernels", "adapter_load", "merge")
CPU_MODULES = ("q", "k", "v")
"""What the calibration with the cpu_lora of a GPU server is for."""
SAYS = {
    "cpu_lora": "per token by the width of a layer's adapters",
    "kernels": "intercepts by layers; per rank and sequence by bytes on each GPU over memory bandwidth",
    "adapter_load": "latency by layers; the same bandwidth, which many small copies bound and not the link",
    "merge": "by the weights that each GPU rewrites over memory bandwidth",
}


def lora(reference: Calibration, source: Setting, target: Setting) -> dict[str, float]:
    """Return the LoRA coefficients of `target`, from those of `reference`, which describes `source`.

    A launch is a launch on every GPU, so what does not grow with the work goes by the layers. What grows is bound by
    the adapters' and the activations' bytes, of which each GPU has its share, over the memory bandwidth. The rate of
    a load stays: many small copies are what bounds it, far below the link. A merge writes all weights that it adapts.
    """
    layers = target.model.layers / source.model.layers
    bandwidth = source.gpu.memory_bandwidth_bytes_per_s / target.gpu.memory_bandwidth_bytes_per_s
    per_rank = target.model.adapter_bytes(1) / source.model.adapter_bytes(1)
    found: dict[str, float] = {}
    for name, value in reference.coefficients.items():
        section, leaf = name.split(".")[0], name.rsplit(".", 1)[1]
        if section not in LORA:
            continue
        if leaf == "bytes_per_s":
            found[name] = value
        elif leaf == "per_byte_s":
            found[name] = value * bandwidth
        elif section == "merge":
            found[name] = value * bandwidth * _adapted_weights(target) / _adapted_weights(source)
        elif leaf.endswith(("rank_s", "rank_sum_s", "per_sequence_s")):
            found[name] = value * bandwidth * per_rank / target.tp
        else:
            found[name] = value * layers
    return found


def cpu_lora(reference: Calibration, source: ModelShape, target: ModelShape) -> dict[str, float]:
    """Return what a layer of `target` takes on CPU cores, from what one of `source` does: by its adapters' width.

    That is for q, k, v and o, of which the reference has as many as it was measured with. Cores, and what it takes GPU
    and CPU to agree, are those of the reference.
    """
    wide = (target.adapter_bytes(1) / target.layers) / (source.adapter_bytes(1, CPU_MODULES) / source.layers)
    return {
        name: value * (wide if ".per_token" in name else 1.0)
        for name, value in reference.coefficients.items()
        if name.startswith("cpu_lora.")
    }


def _adapted_weights(setting: Setting) -> float:
    """Return the weights of q, k, v and o that each GPU holds."""
    layer = setting.weights("attn_pre_proj") + setting.weights("attn_post_proj")
    return setting.model.layers * layer


def attention(fitted: dict[str, float], source: Setting, target: Setting) -> dict[str, float]:
    """Return the attention coefficients of `target` from those fitted over all layers of `source`.

    Decoding reads keys and values: by their bytes on each GPU, over the memory bandwidth. Prefill computes: by
    the arithmetic on each GPU, over the peak. A launch is a launch: by the layers.
    """
    memory = source.gpu.memory_bandwidth_bytes_per_s / target.gpu.memory_bandwidth_bytes_per_s
    read = memory * target.kv_bytes / source.kv_bytes
    compute = source.gpu.fp16_flops / target.gpu.fp16_flops * target.attention_flops / source.attention_flops
    factors = {
        "prefill.intercept_s": target.model.layers / source.model.layers,
        "decode.intercept_s": target.model.layers / source.model.layers,
        "prefill.per_token_s": compute,
        "prefill.per_token_sq_s": compute,
        "decode.per_sequence_s": read,
        "decode.per_context_token_s": read,
        "save.intercept_s": target.model.layers / source.model.layers,
        "save.per_token_s": read,
    }
    return {name: value * factors[name] for name, value in fitted.items()}
