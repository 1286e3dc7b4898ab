"""The budget: how many token slots a replica has left once the weights are in."""

from __future__ import annotations

from typing import NamedTuple

from simlora.core.checks import number, whole
from simlora.core.errors import DoesNotFit, InputError
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


def kv_token_budget(
    model: ModelShape,
    gpu: Gpu,
    tp: int = 1,
    memory_utilisation: float = 0.9,
    reserve_bytes: int = ACTIVATION_RESERVE_BYTES,
    engines: int = 1,
    adapter_slots: AdapterSlots = NO_SLOTS,
) -> int:
    """Return the token slots of a replica on `tp` GPUs, adapters and KV cache together.

    `memory_utilisation` is the share of each GPU that may be used, by all of its `engines` together;
    `reserve_bytes` is the part of it that each engine keeps free; `adapter_slots` are divided among the GPUs. Raises
    DoesNotFit when the model does not, with the least `tp` that would do.
    """
    number("replica.memory_utilisation", memory_utilisation, above=0, most=1)
    whole("replica.tp", tp, "GPUs", least=1)
    if model.heads % tp:
        raise InputError(f"replica.tp is {tp}, must divide the {model.heads} attention heads of {model.name}")
    apart = model.weight_bytes + adapter_slots.size_bytes
    slots = _slots(model, gpu, tp, memory_utilisation / engines, reserve_bytes, apart)
    if slots < 1 and engines > 1:
        raise DoesNotFit(_too_many(model, gpu, memory_utilisation, reserve_bytes, engines))
    if slots < 1:
        raise DoesNotFit(_does_not_fit(model, gpu, tp, memory_utilisation, reserve_bytes, adapter_slots))
    return slots


def _slots(
    model: ModelShape, gpu: Gpu, tp: int, memory_utilisation: float, reserve_bytes: int, apart_bytes: int
) -> int:
    """Return the slots, negative when weights and adapters do not fit. KV heads are copied once `tp` exceeds them."""
    free_bytes = gpu.memory_bytes * memory_utilisation - reserve_bytes - apart_bytes / tp
    return int(free_bytes * min(tp, model.kv_heads) // model.kv_bytes_per_token)


def _does_not_fit(
    model: ModelShape,
    gpu: Gpu,
    tp: int,
    memory_utilisation: float,
    reserve_bytes: int,
    adapter_slots: AdapterSlots,
) -> str:
    apart = model.weight_bytes + adapter_slots.size_bytes
    enough = [
        more
        for more in range(tp + 1, model.heads + 1)
        if model.heads % more == 0 and _slots(model, gpu, more, memory_utilisation, reserve_bytes, apart) >= 1
    ]
    has = tp * gpu.memory_bytes / 1e9
    needs, less = f"{model.weight_bytes / 1e9:.1f} GB of weights", ""
    if adapter_slots.slots:
        needs += (
            f" and {adapter_slots.size_bytes / 1e9:.1f} GB for {adapter_slots.slots} adapter slots of rank "
            f"{adapter_slots.rank}"
        )
        less = "a lower replica.max_adapters or replica.max_lora_rank, "
    return (
        f"{model.name} needs {needs} on {tp} x {gpu.name}, which "
        f"{'has' if tp == 1 else 'have'} {has:.1f} GB ({has * memory_utilisation:.1f} GB usable at "
        f"memory_utilisation {memory_utilisation:g}, {reserve_bytes / 1e9:.1f} GB a GPU of it for activations); "
        f"use {less}a larger GPU{f' or replica.tp >= {enough[0]}' if enough else ''}"
    )


def _too_many(
    model: ModelShape, gpu: Gpu, memory_utilisation: float, reserve_bytes: int, engines: int
) -> str:
    each = gpu.memory_bytes * memory_utilisation / engines
    fit = int(gpu.memory_bytes * memory_utilisation // (model.weight_bytes + reserve_bytes))
    needs = f"{model.weight_bytes / 1e9:.1f} GB of weights and {reserve_bytes / 1e9:.1f} GB for activations"
    return (
        f"{engines} copies of {model.name} (cluster.engines_per_gpu) do not fit {gpu.name}: each needs {needs}, "
        f"and has {each / 1e9:.1f} GB; at most {fit} fit"
    )
