"""Composes an iteration of vLLM's V0 engine (0.5): the base model's kernels, the host's time, and Punica's BGMV."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from simlora.hardware.gpu import Gpu
from simlora.hardware.model import ATTENTION, MLP, ModelShape
from simlora.latency.parts.kernel_times import KernelTimes
from simlora.latency.parts.vllm import engine


def coefficients(
    times: KernelTimes, gpu: Gpu, model: ModelShape, parts: Mapping[str, Any]
) -> dict[str, float]:
    """Return the coefficients of these kernels on `gpu`, with the engine's `parts` of engines.yaml.

    Every token of a pass, of a prompt too, is a row of Punica's BGMV, for all seven projections of a layer, whichever
    an adapter has: its time is by the bytes of A and B over memory bandwidth. The host takes its time after the GPU,
    mostly for each sequence: scheduling, detokenizing, and the API server in the same process.
    """
    lora = parts["lora"]
    whole = replace(model, adapter_bits=None)  # the kernels of quantised adapters take as long
    rank_s = whole.adapter_bytes(1, (*ATTENTION, *MLP)) / times.tp / gpu.memory_bandwidth_bytes_per_s
    found = engine(times, gpu, model, parts)
    for phase, each in (("decode", "sequence"), ("prefill", "token")):
        kernel = f"kernels.bgmv.{phase}"
        found[f"{kernel}.intercept_s"] = lora["launch_s"] * model.layers / gpu.host_speed
        found[f"{kernel}.per_{each}_s"] = lora["token_reads"] * rank_s
        found[f"{kernel}.per_{each}_max_rank_s"] = lora["rank_reads"] * rank_s
    return found
