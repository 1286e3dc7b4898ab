"""The budget: how many token slots a replica has left once the weights are in."""

from __future__ import annotations

from typing import NamedTuple

from simlora.core.checks import number, whole
from simlora.core.errors import DoesNotFit
from simlora.hardware.gpu import Gpu
from simlora.hardware.model import ModelShape

ACTIVATION_RESERVE_BYTES = 1_300_000_000
"""Kept on each GPU for activations and logits.

With it, the pools that vLLM 0.8.5 reported on an H100 of 64 GB without LoRA come out to 0.2 %: 334,816 slots
for Llama-3.1-8B and 777,904 for Qwen-2.5-7B (2,048 batched tokens, 2,048 sequences, utilisation 0.9).
"""


class AdapterSlots(NamedTuple):
    """Memory of adapters that is taken whether they are there or not."""

    slots: int
    rank: int
    size_bytes: int


NO_SLOTS = AdapterSlots(0, 0, 0)


class DraftMemory(NamedTuple):
    """What a draft takes beside the model whose tokens it proposes: weights, and KV of each token."""

    weight_bytes: int
    kv_bytes_per_token: int
    kv_heads: int


NO_DRAFT = DraftMemory(0, 0, 1)


def draft_memory(draft: ModelShape) -> DraftMemory:
    """Return what a model takes that drafts."""
    return DraftMemory(draft.weight_bytes, draft.kv_bytes_per_token, draft.kv_heads)


def eagle_memory(target: ModelShape) -> DraftMemory:
    """Return what EAGLE's head on a model takes: its weights, and the KV of one more layer."""
    weight_bytes = target.eagle_parameters * target.dtype_bytes
    return DraftMemory(weight_bytes, target.kv_bytes_per_token // target.layers, target.kv_heads)


def kv_token_budget(
    model: ModelShape,
    gpu: Gpu,
    tp: int = 1,
    gpu_memory_utilization: float = 0.9,
    reserve_bytes: int = ACTIVATION_RESERVE_BYTES,
    engines: int = 1,
    adapter_slots: AdapterSlots = NO_SLOTS,
    draft: DraftMemory = NO_DRAFT,
) -> int:
    """Return the token slots of a replica on `tp` GPUs, adapters and KV cache together.

    `gpu_memory_utilization` is the share of each GPU that may be used, by all of its `engines` together;
    `reserve_bytes` is the part of it that each engine keeps free; `adapter_slots` and the weights of a `draft` are
    divided among the GPUs, and each slot has the draft's KV beside the model's. Raises DoesNotFit when the model does
    not, with the least `tp` that would do.
    """
    number("replica.gpu_memory_utilization", gpu_memory_utilization, above=0, most=1)
    whole("replica.tp", tp, "GPUs", least=1)
    model.check_tp(tp)
    slots = _slots(
        model, gpu, tp, gpu_memory_utilization / engines, reserve_bytes, adapter_slots.size_bytes, draft
    )
    if slots < 1 and engines > 1:
        raise DoesNotFit(
            _too_many(model, gpu, tp, gpu_memory_utilization, reserve_bytes, engines, adapter_slots, draft)
        )
    if slots < 1:
        raise DoesNotFit(
            _does_not_fit(model, gpu, tp, gpu_memory_utilization, reserve_bytes, adapter_slots, draft)
        )
    return slots


def _slots(
    model: ModelShape,
    gpu: Gpu,
    tp: int,
    gpu_memory_utilization: float,
    reserve_bytes: int,
    adapter_bytes: int,
    draft: DraftMemory,
) -> int:
    """Return the slots, negative when weights and adapters do not fit. KV heads are copied once `tp` exceeds them."""
    apart_bytes = model.weight_bytes + draft.weight_bytes + adapter_bytes
    free_bytes = gpu.memory_bytes * gpu_memory_utilization - reserve_bytes - apart_bytes / tp
    heads = min(tp, model.kv_heads)
    beside_bytes = draft.kv_bytes_per_token / min(tp, draft.kv_heads) * heads
    return int(free_bytes * heads // (model.kv_bytes_per_token + beside_bytes))


def _does_not_fit(
    model: ModelShape,
    gpu: Gpu,
    tp: int,
    gpu_memory_utilization: float,
    reserve_bytes: int,
    adapter_slots: AdapterSlots,
    draft: DraftMemory,
) -> str:
    apart = adapter_slots.size_bytes
    enough = [
        more
        for more in range(tp + 1, model.heads + 1)
        if model.heads % more == 0
        and _slots(model, gpu, more, gpu_memory_utilization, reserve_bytes, apart, draft) >= 1
    ]
    has = tp * gpu.memory_bytes / 1e9
    needs = " and ".join(_needs(model, adapter_slots, draft))
    less = "a lower replica.max_loras or replica.max_lora_rank, " if adapter_slots.slots else ""
    return (
        f"{model.name} needs {needs} on {tp} x {gpu.name}, which "
        f"{'has' if tp == 1 else 'have'} {has:.1f} GB ({has * gpu_memory_utilization:.1f} GB usable at "
        f"gpu_memory_utilization {gpu_memory_utilization:g}, {reserve_bytes / 1e9:.1f} GB a GPU of it for activations)"
        f"; use {less}a larger GPU{f' or replica.tp >= {enough[0]}' if enough else ''}"
    )


def _too_many(
    model: ModelShape,
    gpu: Gpu,
    tp: int,
    gpu_memory_utilization: float,
    reserve_bytes: int,
    engines: int,
    adapter_slots: AdapterSlots,
    draft: DraftMemory,
) -> str:
    apart = adapter_slots.size_bytes
    each = tp * gpu.memory_bytes * gpu_memory_utilization / engines
    fit = max(
        (
            fewer
            for fewer in range(1, engines)
            if _slots(model, gpu, tp, gpu_memory_utilization / fewer, reserve_bytes, apart, draft) >= 1
        ),
        default=0,
    )
    needs = ", ".join(_needs(model, adapter_slots, draft))
    return (
        f"{engines} copies of {model.name} (cluster.engines_per_gpu) do not fit {gpu.name}: each needs {needs} and "
        f"{reserve_bytes / 1e9:.1f} GB for activations, and has {each / 1e9:.1f} GB; at most {fit} fit"
    )


def _needs(model: ModelShape, adapter_slots: AdapterSlots, draft: DraftMemory) -> list[str]:
    """Return what a replica needs memory for before any KV, in words."""
    needs = [f"{model.weight_bytes / 1e9:.1f} GB of weights"]
    if draft.weight_bytes:
        needs.append(f"{draft.weight_bytes / 1e9:.1f} GB of the draft's")
    if adapter_slots.slots:
        size_gb = adapter_slots.size_bytes / 1e9
        needs.append(f"{size_gb:.1f} GB for {adapter_slots.slots} adapter slots of rank {adapter_slots.rank}")
    return needs
