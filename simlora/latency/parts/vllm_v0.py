"""Composes an iteration of vLLM's V0 engine (0.5): the base model's kernels, the host's time, and Punica's BGMV."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from simlora.hardware.gpu import Gpu
from simlora.hardware.model import ATTENTION, MLP, ModelShape
from simlora.latency.calibration import CONTEXT_BY_BATCH, PASS_BY_TOKENS, STEP_BY_BATCH
from simlora.latency.parts.kernel_times import BATCHES, TOKENS, KernelTimes


def coefficients(
    times: KernelTimes, gpu: Gpu, model: ModelShape, parts: Mapping[str, Any]
) -> dict[str, float]:
    """Return the coefficients of these kernels on `gpu`, with the engine's `parts` of engines.yaml.

    Every token of a pass, of a prompt too, is a row of Punica's BGMV, for all seven projections of a layer, whichever
    an adapter has: its time is by the bytes of A and B over memory bandwidth. The host takes its time after the GPU,
    mostly for each sequence: scheduling, detokenizing, and the API server in the same process.
    """
    speed = parts["host_speed"] / gpu.host_speed
    host, lora, load = (
        {leaf: value * speed for leaf, value in parts["host"].items()},
        parts["lora"],
        parts["load"],
    )
    rank_s = model.adapter_bytes(1, (*ATTENTION, *MLP)) / times.tp / gpu.memory_bandwidth_bytes_per_s
    token = {"token_s": lora["token_reads"] * rank_s, "rank_s": lora["rank_reads"] * rank_s}
    launch_s = lora["launch_s"] * model.layers / gpu.host_speed
    found = {f"{PASS_BY_TOKENS}.{tokens}": times.pass_s[tokens] + host["step_s"] for tokens in TOKENS}
    for batch in BATCHES:
        found[f"{STEP_BY_BATCH}.{batch}"] = times.step_s[batch] + host["step_s"] + host["sequence_s"] * batch
        found[f"{CONTEXT_BY_BATCH}.{batch}"] = max(times.context_token_s[batch], 0.0)
    return found | {
        "host.intercept_s": host["step_s"],
        "host.per_sequence_s": host["sequence_s"],
        "front_end.per_request_s": host["request_s"],
        "adapter_load.latency_s": load["latency_s"] * model.layers,
        "adapter_load.bytes_per_s": load["link_share"] * gpu.host_link.bytes_per_s,
        "adapter_load.disk_latency_s": load["disk_latency_s"],
        "kernels.bgmv.decode.intercept_s": launch_s,
        "kernels.bgmv.decode.per_sequence_s": token["token_s"],
        "kernels.bgmv.decode.per_sequence_max_rank_s": token["rank_s"],
        "kernels.bgmv.prefill.intercept_s": launch_s,
        "kernels.bgmv.prefill.per_token_s": token["token_s"],
        "kernels.bgmv.prefill.per_token_max_rank_s": token["rank_s"],
    }
