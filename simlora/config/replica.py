"""The limits of one replica, and how long things take on it, as a configuration says."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import numpy as np

from simlora.config.reading import as_whole
from simlora.core.adapter import RANK_MAX
from simlora.core.checks import listed, number, shown, whole
from simlora.core.errors import InputError, nearest
from simlora.core.trace import BASE_MODEL, Trace
from simlora.engine.replica_config import ReplicaConfig
from simlora.hardware.budget import ACTIVATION_RESERVE_BYTES, NO_SLOTS, AdapterSlots, kv_token_budget
from simlora.hardware.gpu import Gpu
from simlora.hardware.model import ModelShape
from simlora.latency import calibration as calibrations
from simlora.latency.calibration import Calibration
from simlora.latency.collectives import folded

REPLICA_KEYS = (
    *(field.name for field in fields(ReplicaConfig) if field.name != "host_kv_tokens"),
    "memory_utilisation",
    "activation_bytes",
    "activation_bytes_per_logit",
    "host_kv_bytes",
    "adapter_region_share",
)
POOL_MAX = 10**12
ACTIVATIONS_MAX = 10**12
BLOCK_MAX = 65_536
HOST_MAX = 10**15
PREFILL_TOKENS_LEAST = 3072
"""S-LoRA prefills at most max(pool / 6, 3072) tokens at once."""


def replica_config(
    tree: dict[str, Any], gpu: Gpu, model: ModelShape, engines_per_gpu: int, chunks: bool
) -> ReplicaConfig:
    """Return the limits that the section `replica` gives on a GPU; `chunks`: the scheduler prefills in chunks."""
    found = _replica(tree, gpu, model, engines_per_gpu)
    return _in_chunks(found) if chunks else found


def calibration_for(
    choice: Any, gpu: Gpu, model: ModelShape, replica: ReplicaConfig, engine: Any
) -> tuple[Calibration, list[str]]:
    """Return the calibration and notices about what it was not made for; None: by GPU, model, tp and engine."""
    name = f"{gpu.name}-{model.name}-tp{replica.tp}" + _engine(engine)
    found = _calibration(choice, name, gpu.name, model.name, replica.tp)
    folded(found[0], model, replica.target_modules)  # raises for a coefficient that several GPUs need
    return found


def budgets_by_rate(trace: Trace, slots: int, replicas: int, engines: int) -> tuple[int, ...]:
    """Return the pools of replicas that share GPUs: what their weights leave, by the requests that each will get.

    Adapter i belongs to replica i, counted round the replicas; the base model's requests go to all alike.
    """
    own = trace.adapter[trace.adapter != BASE_MODEL] % replicas
    requests = np.bincount(own, minlength=replicas) + (len(trace) - len(own)) / replicas
    budgets = []
    for first in range(0, replicas, engines):
        here = requests[first : first + engines] + 1e-9
        budgets += [max(int(slots * len(here) * share), 1) for share in here / here.sum()]
    return tuple(budgets)


def check_ranks(replica: ReplicaConfig, trace: Trace) -> None:
    """Slots hold adapters of up to a rank."""
    if replica.adapter_memory != "slots" or not trace.adapters:
        return
    assert replica.max_lora_rank is not None
    highest = max(trace.adapters, key=lambda adapter: adapter.rank)
    if highest.rank > replica.max_lora_rank:
        raise InputError(
            f"adapter {highest.name} has rank {highest.rank}, must be at most replica.max_lora_rank, which is "
            f"{replica.max_lora_rank}"
        )


def _replica(tree: dict[str, Any], gpu: Gpu, model: ModelShape, engines_per_gpu: int) -> ReplicaConfig:
    values = {key: as_whole(value) for key, value in tree.items()}
    values["tp"] = whole("replica.tp", values.get("tp"), "GPUs", least=1)
    model.check_tp(values["tp"])
    modules = _modules(values.get("target_modules"), model)
    used = number("replica.memory_utilisation", values.pop("memory_utilisation", 0.9), above=0, most=1)
    reserve = whole(
        "replica.activation_bytes",
        as_whole(values.pop("activation_bytes", ACTIVATION_RESERVE_BYTES)),
        "bytes",
        least=0,
        most=ACTIVATIONS_MAX,
    )
    per_logit = number(
        "replica.activation_bytes_per_logit", values.pop("activation_bytes_per_logit", 0.0), "bytes", least=0
    )
    sequences = whole("replica.max_batch_size", values.get("max_batch_size"), "requests", least=1)
    reserve += int(per_logit * sequences * model.vocab)
    adapter_slots = _adapter_slots(values, model, modules)
    region_share = number(
        "replica.adapter_region_share",
        values.pop("adapter_region_share", 0.0),
        "of the slots",
        least=0,
        most=0.99,
    )
    if adapter_slots.slots:
        values["adapter_region_tokens"] = adapter_slots.size_bytes // model.kv_bytes_per_token
    own_memory = values.get("adapter_memory") not in ("unified", "slots")
    if values.get("kv_token_budget") is None or (own_memory and values.get("adapter_region_tokens") is None):
        slots = kv_token_budget(model, gpu, values["tp"], used, reserve, engines_per_gpu, adapter_slots)
        if values.get("full_copies"):  # they are in the pool, and there is no other
            slots += model.weight_bytes // model.kv_bytes_per_token
        region = int(slots * region_share) if own_memory else 0
        if values.get("kv_token_budget") is None:
            values["kv_token_budget"] = slots - region
    budget = whole(
        "replica.kv_token_budget", values["kv_token_budget"], "token slots", least=1, most=POOL_MAX
    )
    if values.get("adapter_region_tokens") is None:
        if own_memory and budget >= slots:
            raise InputError(
                f"replica.kv_token_budget is {budget}, which leaves nothing of the GPU's {slots} token slots to "
                "adapters; must be less, or give replica.adapter_region_tokens"
            )
        values["adapter_region_tokens"] = slots - budget if own_memory else 0
    whole(
        "replica.adapter_region_tokens",
        values["adapter_region_tokens"],
        "token slots",
        least=0,
        most=POOL_MAX,
    )
    host_kv_bytes = number(
        "replica.host_kv_bytes", values.pop("host_kv_bytes", 0.0), "bytes", least=0, most=HOST_MAX
    )
    values["host_kv_tokens"] = int(host_kv_bytes) // model.kv_bytes_per_token
    if host_kv_bytes and not values["host_kv_tokens"]:
        raise InputError(
            f"replica.host_kv_bytes is {host_kv_bytes:g}, must be 0 or at least the "
            f"{model.kv_bytes_per_token:,} bytes of one token's keys and values of {model.name}"
        )
    whole("replica.block_tokens", values.get("block_tokens"), "tokens", least=1, most=BLOCK_MAX)
    if values.get("max_prefill_tokens") is None:
        values["max_prefill_tokens"] = max(budget // 6, PREFILL_TOKENS_LEAST)
    return ReplicaConfig(**(values | {"target_modules": modules}))


def _adapter_slots(values: dict[str, Any], model: ModelShape, modules: tuple[str, ...]) -> AdapterSlots:
    """Return the adapter slots of all GPUs of a replica together."""
    if values.get("adapter_memory") != "slots":
        return NO_SLOTS
    count = whole("replica.max_adapters", values.get("max_adapters"), "adapters (slots)", least=1)
    rank = whole("replica.max_lora_rank", values.get("max_lora_rank"), least=1, most=RANK_MAX)
    return AdapterSlots(count, rank, count * model.slot_bytes(rank, modules))


def _modules(value: Any, model: ModelShape) -> tuple[str, ...]:
    """Return what LoRA adapts; an empty list says that every adapter is merged into a model of its own."""
    if value == []:
        return ()
    modules = tuple(map(str, listed("replica.target_modules", value, "[q,k,v,o]")))
    model.adapter_bytes(1, modules)  # raises for modules that the model does not have
    return modules


def _engine(value: Any) -> str:
    """Return the end of a calibration's name: nothing for S-LoRA's engine, else the engine that was measured."""
    if value is None:
        return ""
    if not isinstance(value, str) or not value.isidentifier():
        raise InputError(f"engine is {shown(value)}, must be the name of a serving engine, or null")
    return f"-{value}"


def _in_chunks(replica: ReplicaConfig) -> ReplicaConfig:
    """Return limits for a scheduler that prefills in chunks: no prompt is too long for one iteration."""
    if replica.reserve == "padded":
        raise InputError(
            "replica.reserve is padded, must be full, peak or paged where prompts come in chunks"
        )
    return replace(replica, max_prefill_tokens=max(replica.kv_token_budget, replica.max_prefill_tokens))


def _calibration(choice: Any, name: str, gpu: str, model: str, tp: int) -> tuple[Calibration, list[str]]:
    """Return the calibration and notices about what it was not made for."""
    if choice is not None and not isinstance(choice, str):
        raise InputError(f"calibration is {shown(choice)}, must be a name or the path of a YAML file")
    if choice is None and name not in calibrations.names():
        raise InputError(
            f"there is no calibration {name} ({model} on {gpu} with tp {tp}); choose calibration=<path of a YAML file> "
            f"or one of ours: {nearest(name, calibrations.names())}"
        )
    found = calibrations.load(name if choice is None else choice)
    differs = [
        f"{key} {measured} instead of {chosen}"
        for key, measured, chosen in (
            ("gpu", found.gpu, gpu),
            ("model", found.model, model),
            ("tp", found.tp, tp),
        )
        if measured != chosen
    ]
    if differs and choice is None:
        raise InputError(f"calibration {name} is for {', '.join(differs)}")
    if found.tp != tp:
        raise InputError(f"calibration {found.path} is for tp {found.tp}, must be for replica.tp {tp}")
    notice = f"calibration {found.path} is for {', '.join(differs)}; its times are used as they are."
    return found, [notice] if differs else []
