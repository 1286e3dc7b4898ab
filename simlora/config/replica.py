"""The limits of one replica, as a configuration says."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any, NamedTuple

import numpy as np

from simlora.config.reading import as_whole
from simlora.core.adapter import RANK_MAX
from simlora.core.checks import listed, number, switch, whole
from simlora.core.errors import InputError
from simlora.core.trace import BASE_MODEL, Trace
from simlora.engine.replica_config import ReplicaConfig
from simlora.hardware.budget import (
    ACTIVATION_RESERVE_BYTES,
    NO_DRAFT,
    NO_SLOTS,
    AdapterSlots,
    DraftMemory,
    kv_token_budget,
)
from simlora.hardware.gpu import Gpu
from simlora.hardware.model import ModelShape

OF_ALL = ("lora_communication", "listed_adapters", "expert_parallel", "adapter_bits")
"""Keys of the section that say what all replicas do, and no replica's limit."""
REPLICA_KEYS = (
    *(
        field.name
        for field in fields(ReplicaConfig)
        if field.name not in ("host_kv_tokens", "speculative_tokens")
    ),
    "gpu_memory_utilization",
    "activation_bytes",
    "activation_bytes_per_logit",
    "host_kv_bytes",
    "adapter_region_share",
    *OF_ALL,
)


class Speculates(NamedTuple):
    """What speculation does to a replica's memory: tokens proposed of each running request, and the draft."""

    tokens: int
    memory: DraftMemory


SPECULATES_NOT = Speculates(0, NO_DRAFT)
POOL_MAX = 10**12
ACTIVATIONS_MAX = 10**12
BLOCK_MAX = 65_536
HOST_MAX = 10**15
PREFILL_TOKENS_LEAST = 3072
"""S-LoRA prefills at most max(pool / 6, 3072) tokens at once."""


def replica_config(
    tree: dict[str, Any],
    gpu: Gpu,
    model: ModelShape,
    engines_per_gpu: int,
    chunks: bool,
    speculates: Speculates = SPECULATES_NOT,
) -> ReplicaConfig:
    """Return the limits that the section `replica` gives on a GPU; `chunks`: the scheduler prefills in chunks."""
    found = _replica(tree, gpu, model, engines_per_gpu, speculates)
    return _in_chunks(found) if chunks else found


def experts_apart(limits: Mapping[str, Any], model: ModelShape) -> bool:
    """Return `replica.expert_parallel`. Raises InputError without experts, or GPUs to spread them over."""
    apart = switch("replica.expert_parallel", limits.get("expert_parallel"))
    if apart and (model.experts == 1 or as_whole(limits.get("tp")) == 1):
        raise InputError(
            "replica.expert_parallel spreads the experts of a mixture over the GPUs of a replica, which needs a model "
            f"with experts and replica.tp above 1, not {model.name} on {limits.get('tp')}"
        )
    return apart


def budgets_by_rate(trace: Trace, slots: int, replicas: int, engines: int) -> tuple[int, ...]:
    """Return the token slots of replicas that share GPUs: what weights leave, by the requests that each will get.

    `slots` is the share of each if all are alike, `engines` how many replicas a GPU has. Adapter i belongs to replica
    i, counted round the replicas; the base model's requests go to all alike.
    """
    own = trace.adapter[trace.adapter != BASE_MODEL] % replicas
    requests = np.bincount(own, minlength=replicas) + (len(trace) - len(own)) / replicas
    budgets = []
    for first in range(0, replicas, engines):
        here = requests[first : first + engines] + 1e-9
        budgets += [max(int(slots * len(here) * share), 1) for share in here / here.sum()]
    return tuple(budgets)


def check_ranks(replicas: Sequence[ReplicaConfig], trace: Trace) -> None:
    """Raise InputError if the trace has an adapter of a higher rank than the slots of any kind of replica hold."""
    if not trace.adapters:
        return
    highest = max(trace.adapters, key=lambda adapter: adapter.rank)
    most = max(each.highest_rank for each in replicas)
    if highest.rank > most:
        of = (
            "replica.max_lora_rank"
            if len(replicas) == 1
            else "the highest replica.max_lora_rank of all replicas"
        )
        raise InputError(
            f"adapter {highest.name} has rank {highest.rank}, must be at most {of}, which is {most}"
        )


def _replica(
    tree: dict[str, Any], gpu: Gpu, model: ModelShape, engines_per_gpu: int, speculates: Speculates
) -> ReplicaConfig:
    values = {key: as_whole(value) for key, value in tree.items()}
    values["tp"] = whole("replica.tp", values.get("tp"), "GPUs", least=1)
    model.check_tp(values["tp"])
    for key in OF_ALL:
        values.pop(key, None)
    modules = _modules(values.get("target_modules"), model)
    used = number(
        "replica.gpu_memory_utilization", values.pop("gpu_memory_utilization", 0.9), above=0, most=1
    )
    reserve_bytes = _reserve_bytes(values, model)
    adapter_slots = _adapter_slots(values, model, modules)

    def slots_left() -> int:
        """Return the token slots that weights, activations and adapter slots leave. Raises DoesNotFit."""
        slots = kv_token_budget(
            model, gpu, values["tp"], used, reserve_bytes, engines_per_gpu, adapter_slots, speculates.memory
        )
        if values.get("full_copies"):  # they are in the pool, and there is no other
            slots += model.weight_bytes // model.kv_bytes_per_token
        return slots

    if adapter_slots.slots:
        values["adapter_region_tokens"] = adapter_slots.size_bytes // model.kv_bytes_per_token
    budget, region = _pool_and_region(values, slots_left)
    values |= {"kv_token_budget": budget, "adapter_region_tokens": region}
    values["host_kv_tokens"] = _host_kv_tokens(values, model)
    whole("replica.block_size", values.get("block_size"), "tokens", least=1, most=BLOCK_MAX)
    if values.get("max_num_batched_tokens") is None:
        values["max_num_batched_tokens"] = max(budget // 6, PREFILL_TOKENS_LEAST)
    values["speculative_tokens"] = speculates.tokens
    return ReplicaConfig(**(values | {"target_modules": modules}))


def _reserve_bytes(values: dict[str, Any], model: ModelShape) -> int:
    """Take what activations need out of `values`, and return it: a fixed part, and logits of a full batch."""
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
    sequences = whole("replica.max_num_seqs", values.get("max_num_seqs"), "requests", least=1)
    return reserve + int(per_logit * sequences * model.vocab)


def _pool_and_region(values: dict[str, Any], slots_left: Callable[[], int]) -> tuple[int, int]:
    """Return the token slots of the pool and of adapters' own memory: as given, or what the GPU has left.

    Takes the share that goes to adapters out of `values`.
    """
    share = number(
        "replica.adapter_region_share",
        values.pop("adapter_region_share", 0.0),
        "of the slots",
        least=0,
        most=0.99,
    )
    budget, region = values.get("kv_token_budget"), values.get("adapter_region_tokens")
    own_memory = values.get("adapter_memory") not in ("unified", "slots")
    left = None
    if budget is None or (own_memory and region is None):
        left = slots_left()
        if budget is None:
            budget = left - (int(left * share) if own_memory else 0)
    budget = whole("replica.kv_token_budget", budget, "token slots", least=1, most=POOL_MAX)
    if region is None and own_memory:
        assert left is not None
        if budget >= left:
            raise InputError(
                f"replica.kv_token_budget is {budget}, which leaves nothing of the GPU's {left} token slots to "
                "adapters; must be less, or give replica.adapter_region_tokens"
            )
        region = left - budget
    region = 0 if region is None else region
    return budget, whole("replica.adapter_region_tokens", region, "token slots", least=0, most=POOL_MAX)


def _host_kv_tokens(values: dict[str, Any], model: ModelShape) -> int:
    """Take the bytes of cached KV on the host out of `values`, and return them in tokens."""
    host_kv_bytes = number(
        "replica.host_kv_bytes", values.pop("host_kv_bytes", 0.0), "bytes", least=0, most=HOST_MAX
    )
    tokens = int(host_kv_bytes) // model.kv_bytes_per_token
    if host_kv_bytes and not tokens:
        raise InputError(
            f"replica.host_kv_bytes is {host_kv_bytes:g}, must be 0 or at least the "
            f"{model.kv_bytes_per_token:,} bytes of one token's keys and values of {model.name}"
        )
    return tokens


def _adapter_slots(values: dict[str, Any], model: ModelShape, modules: tuple[str, ...]) -> AdapterSlots:
    """Return the adapter slots of all GPUs of a replica together."""
    if values.get("adapter_memory") != "slots":
        return NO_SLOTS
    count = whole("replica.max_loras", values.get("max_loras"), "adapters (slots)", least=1)
    rank = whole("replica.max_lora_rank", values.get("max_lora_rank"), least=1, most=RANK_MAX)
    return AdapterSlots(count, rank, count * model.slot_bytes(rank, modules))


def _modules(value: Any, model: ModelShape) -> tuple[str, ...]:
    """Return what LoRA adapts; an empty list says that every adapter is merged into a model of its own."""
    if value == []:
        return ()
    modules = tuple(map(str, listed("replica.target_modules", value, "[q,k,v,o]")))
    model.adapter_bytes(1, modules)  # raises for modules that the model does not have
    return modules


def _in_chunks(replica: ReplicaConfig) -> ReplicaConfig:
    """Return limits for a scheduler that prefills in chunks: no prompt is too long for one iteration."""
    if replica.reserve == "padded":
        raise InputError(
            "replica.reserve is padded, must be full, peak or paged where prompts come in chunks"
        )
    return replace(
        replica, max_num_batched_tokens=max(replica.kv_token_budget, replica.max_num_batched_tokens)
    )
