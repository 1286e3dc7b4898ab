"""Composes an iteration of S-LoRA's engine: launches, the base model's kernels, contexts, LoRA kernels and loads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from simlora.hardware.gpu import Gpu
from simlora.hardware.model import ATTENTION, ModelShape
from simlora.latency.calibration import PASS_BY_TOKENS, STEP_BY_BATCH
from simlora.latency.parts.kernel_times import BATCHES, TOKENS, KernelTimes

LAYERS = 32
"""Of Llama-7B, whose launches were measured."""


def coefficients(
    times: KernelTimes, gpu: Gpu, model: ModelShape, parts: Mapping[str, Any]
) -> dict[str, float]:
    """Return the coefficients of these kernels on `gpu`, with the engine's `parts` of engines.yaml.

    The engine launches every kernel from Python, one by one, and then waits for the sampled tokens: a step takes its
    launches or the base model's kernels, whichever is longer, and what follows the wait. Contexts and adapters add to
    that; they are bound by the bytes that they read, over the memory bandwidth. Launches go by layers and by the speed
    of the GPU's host, and so do loads, which are many small copies, and LoRA on CPU cores. Differs: contexts and
    adapters would hide behind launches, too, where those are the longer part; that is at most 2 ms.
    """
    host, lora, load = parts["host"], parts["lora"], parts["load"]
    launches = model.layers / LAYERS / gpu.host_speed
    launch_s, wait_s = host["launch_s"] * launches, host["wait_s"] / gpu.host_speed
    found = {
        f"{PASS_BY_TOKENS}.{tokens}": times.pass_s[tokens] + host["prefill_s"] * launches for tokens in TOKENS
    }
    for batch in BATCHES:
        sequences_s = host["sequence_s"] / gpu.host_speed * batch
        found[f"{STEP_BY_BATCH}.{batch}"] = max(launch_s, times.step_s[batch]) + wait_s + sequences_s
    adapter_bytes = replace(model, adapter_bits=None).adapter_bytes(
        1
    )  # those of quantised adapters take as long
    adapted_bytes = (
        sum(a * b for a, b in map(model.module_shape, ATTENTION)) * model.layers * model.dtype_bytes
    )
    bmm, merge, cpu = parts["padded_bmm"], parts["merge"], parts["cpu_lora"]
    kv_bytes = model.kv_bytes_per_token / min(times.tp, model.kv_heads)
    rank_s = adapter_bytes / times.tp / gpu.memory_bandwidth_bytes_per_s
    return found | {
        "decode.per_context_token_s": parts["context_reads"] * kv_bytes / gpu.memory_bandwidth_bytes_per_s,
        "kernels.mbgmv.decode.intercept_s": lora["launch_s"] * launches,
        "kernels.mbgmv.decode.per_rank_sum_s": lora["own_reads"] * rank_s,
        "kernels.mbgmv.decode.per_sequence_max_rank_s": lora["highest_reads"] * rank_s,
        "kernels.mbgmv.prefill.intercept_s": lora["prefill_s"] * launches,
        "kernels.mbgmv.prefill.per_token_rank_s": lora["prefill_reads"] * rank_s,
        "kernels.bgmv.decode.intercept_s": lora["launch_s"] * launches,
        "kernels.bgmv.decode.per_sequence_max_rank_s": (lora["own_reads"] + lora["highest_reads"]) * rank_s,
        "kernels.bgmv.prefill.intercept_s": lora["prefill_s"] * launches,
        "kernels.bgmv.prefill.per_token_max_rank_s": lora["prefill_reads"] * rank_s,
        "kernels.padded_bmm.decode.intercept_s": 0.0,
        "kernels.padded_bmm.decode.per_segment_s": bmm["segment_s"] * launches,
        "kernels.padded_bmm.decode.per_segment_max_rank_s": bmm["segment_reads"] * rank_s,
        "kernels.padded_bmm.prefill.intercept_s": 0.0,
        "kernels.padded_bmm.prefill.per_segment_s": bmm["prefill_segment_s"] * launches,
        "kernels.padded_bmm.prefill.per_token_max_rank_s": bmm["prefill_reads"] * rank_s,
        "merge.intercept_s": merge["passes"] * adapted_bytes / times.tp / gpu.memory_bandwidth_bytes_per_s,
        "merge.per_byte_s": merge["reads"] / gpu.memory_bandwidth_bytes_per_s,
        "cpu_lora.tokens_per_core": cpu["tokens_per_core"],
        "cpu_lora.intercept_s": cpu["intercept_s"] / gpu.host_speed,
        "cpu_lora.per_token_s": cpu["token_byte_s"] * adapter_bytes / model.layers / gpu.host_speed,
        "cpu_lora.per_token_rank_s": cpu["token_rank_byte_s"] * adapter_bytes / model.layers / gpu.host_speed,
        "cpu_lora.sync_s": cpu["sync_s"] / gpu.host_speed,
        "adapter_load.latency_s": load["latency_s"] * launches,
        "adapter_load.bytes_per_s": min(load["bytes_per_s"] * gpu.host_speed, gpu.host_link.bytes_per_s),
    }
