"""Composes an iteration of vLLM's V1 engine: the base model's kernels, the host's time, LoRA kernels and loads."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from simlora.hardware.gpu import Gpu
from simlora.hardware.model import ModelShape
from simlora.latency.calibration import CONTEXT_BY_BATCH, PASS_BY_TOKENS, STEP_BY_BATCH
from simlora.latency.parts.kernel_times import BATCHES, TOKENS, KernelTimes


def coefficients(
    times: KernelTimes, gpu: Gpu, model: ModelShape, parts: Mapping[str, Any]
) -> dict[str, float]:
    """Return the coefficients of these kernels on `gpu`, with the engine's `parts` of engines.yaml.

    Nothing of the host's time hides behind the GPU: the V1 engine without asynchronous scheduling. The host's time goes
    by the speed of the GPU's host, LoRA kernels and the latency of a load by layers.
    """
    found = engine(times, gpu, model, parts)
    host = scaled_host(gpu, parts)
    found["scheduler.per_passed_request_s"] = host["passed_request_s"]
    found["lora_manager.per_listed_adapter_s"] = host["listed_adapter_s"]
    return found | {f"kernels.vllm.{leaf}": each_s * model.layers for leaf, each_s in parts["lora"].items()}


def scaled_host(gpu: Gpu, parts: Mapping[str, Any]) -> dict[str, float]:
    """Return the host's seconds beside a GPU."""
    speed = parts["host_speed"] / gpu.host_speed
    return {leaf: value * speed for leaf, value in parts["host"].items()}


def engine(times: KernelTimes, gpu: Gpu, model: ModelShape, parts: Mapping[str, Any]) -> dict[str, float]:
    """Return what both of vLLM's engines are made of: kernels, the host's time after them, and loads."""
    host, load = scaled_host(gpu, parts), parts["load"]
    found = {f"{PASS_BY_TOKENS}.{tokens}": times.pass_s[tokens] + host["step_s"] for tokens in TOKENS}
    for batch in BATCHES:
        found[f"{STEP_BY_BATCH}.{batch}"] = times.step_s[batch] + host["step_s"] + host["sequence_s"] * batch
        found[f"{CONTEXT_BY_BATCH}.{batch}"] = max(times.context_token_s[batch], 0.0)
    return found | {
        "host.intercept_s": host["step_s"],
        "host.per_sequence_s": host["sequence_s"],
        "front_end.per_request_s": host["request_s"],
        "front_end.per_adapter_s": host["adapter_s"],
        "adapter_load.latency_s": load["latency_s"] * model.layers,
        "adapter_load.bytes_per_s": load["link_share"] * gpu.host_link.bytes_per_s,
        "adapter_load.disk_latency_s": load["disk_latency_s"],
    }
