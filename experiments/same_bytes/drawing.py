"""Random scenarios: a system with exchanged policies, limits, cluster and workload, most of which fit together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from experiments.same_bytes import values
from experiments.same_bytes.composed import SLOTS, System, system
from simlora.config.composing import choices
from simlora.engine.pools_config import KV_HANDOVERS
from simlora.engine.replica_config import WRITE_POLICIES

SHARE_UNMENDED = 0.05
"""Of the scenarios, whose parts are left as drawn, so that refusals are compared too."""
PAUSING = ("credit", "merged_only", "unmerged_only", "peft_continuous")
CHUNKED = ("chunked_prefill", "chunked_slo")
AHEAD = ("prefetching", "predictive")
SWAPPERS = ("cost_model", "banded_lru")
MERGING = ("merged_per_batch", "peft_continuous")
"""Those that merge adapters, and do not pause requests of others."""
MERGES = (*MERGING, "credit", "merged_only")
DECODE_ROUTERS = ("round_robin", "most_idle", "adapter_affinity", "pending_time", "rank_aware", "gie_lora")


@dataclass(frozen=True)
class Scenario:
    """Overrides by the new names of keys, and what was chosen in each slot that is counted."""

    number: int
    overrides: tuple[str, ...]
    choices: Mapping[str, str]


@dataclass
class Draft:
    """A scenario that is being drawn; `keys` are overrides by key, the last of a key counts."""

    rng: np.random.Generator
    name: str
    base: System
    slots: dict[str, str]
    keys: dict[str, str] = field(default_factory=dict)

    def one(self, options: Sequence[Any]) -> Any:
        """Return one of some options."""
        return options[int(self.rng.integers(len(options)))]

    def happens(self, share: float) -> bool:
        """Whether something of this probability happens."""
        return bool(self.rng.random() < share)

    def replica(self, key: str) -> str:
        """Return the value of a replica's key, as an override has it."""
        found = self.keys.get(f"replica.{key}", self.base.replica[key])
        return str(found).lower() if isinstance(found, bool) else str(found)

    def put(self, key: str, value: object) -> None:
        """Set a key."""
        self.keys[key] = str(value)

    def put_some(self, *shared: tuple[str, float, Sequence[Any]]) -> None:
        """Set some keys: each with a probability, to one of some options."""
        for key, share, options in shared:
            if self.happens(share):
                self.put(key, self.one(options))

    def rests(self, **choices: str) -> bool:
        """Whether nothing moves requests or changes the number of replicas, and these slots have these choices."""
        choices |= {"migration": "stay", "autoscaler": "fixed"}
        return all(self.slots[slot] == choice for slot, choice in choices.items())

    @property
    def distributed(self) -> bool:
        """Whether hosts hold some adapters each, by the system or by what is drawn."""
        return self.base.distributed or self.keys.get("cluster.adapter_pool") == "distributed"


def drawn(seed: int, number: int, calibration: Path) -> Scenario:
    """Return scenario `number` of a seed; `calibration` is a file with coefficients for all policies."""
    rng = np.random.default_rng([seed, number])
    systems = choices("system")
    name = systems[int(rng.integers(len(systems)))] if rng.random() < 0.6 else "slora"
    base = system(name)
    draft = Draft(rng, name, base, dict(base.slots))
    _hardware(draft, calibration)
    _exchange(draft)
    _workload(draft)
    _limits(draft)
    _cluster(draft, calibration)
    _run(draft)
    if not draft.happens(SHARE_UNMENDED):
        _mend_memory(draft)
        _mend_cluster(draft)
    return _scenario(draft, number)


def _hardware(draft: Draft, calibration: Path) -> None:
    """One GPU and model for all, whose calibration has every coefficient; or at times two GPUs for each replica."""
    draft.put("gpu", "a100_80g")
    draft.put("model", "llama_2_7b")
    draft.put("engine", "null")
    two = draft.happens(0.1) and draft.slots["kernel"] not in ("vllm", "one_hot_einsum")
    draft.put("calibration", "null" if two else calibration)
    draft.put("replica.tp", 2 if two else 1)


def _exchange(draft: Draft) -> None:
    share = 0.6 if draft.name == "slora" else 0.25
    for slot in SLOTS:
        if draft.happens(share) and slot not in draft.base.bound:
            draft.slots[slot] = draft.one(choices(slot))
            draft.put(slot, draft.slots[slot])


def _workload(draft: Draft) -> None:
    cached = draft.slots["eviction"] in SWAPPERS or draft.happens(0.3)
    name = draft.one(values.TALKS if cached else list(values.WORKLOADS))
    requests, rate = int(draft.rng.integers(30, 250)), draft.one((8, 16, 30, 60))
    seconds, cv = max(round(requests / rate, 1), 3), draft.one((1, 3, 6))
    draft.put("workload", name)
    for template in values.WORKLOADS[name]:
        filled = template.format(requests=requests, rate=rate, seconds=seconds, cv=cv)
        draft.put(*filled.split("=", 1))
    if name == "loraserve_production":
        return
    adapters = 400 if name == "own_adapters" else draft.one((2, 4, 12, 30))
    draft.put("workload.adapters", adapters)
    draft.put("workload.ranks", draft.one(values.RANKS))


def _limits(draft: Draft) -> None:
    draft.put("replica.kv_token_budget", draft.one(values.REPLICA["kv_token_budget"]))
    if draft.replica("full_copies") == "true":
        draft.put("replica.kv_token_budget", 45000)
    if draft.happens(0.5):
        draft.put("replica.reserve", draft.one(values.RESERVES))
    if draft.happens(0.4):
        draft.put("replica.adapter_memory", draft.one(values.MEMORIES))
    for key, options in values.REPLICA.items():
        if key != "kv_token_budget" and draft.happens(0.2):
            draft.put(f"replica.{key}", draft.one(options))
    if draft.happens(0.5) and draft.keys["workload"] in values.TALKS:
        draft.put("replica.prefix_caching", "true")
        draft.put("replica.host_kv_bytes", draft.one(("0", "5.0e+8", "4.0e+9")))
    if draft.happens(0.2):
        draft.put("replica.max_cpu_loras", draft.one((8, 10, 20)))


def _cluster(draft: Draft, calibration: Path) -> None:
    draft.put("cluster.replicas", draft.one((1, 2, 3, 4)))
    draft.put("host.replicas", draft.one((1, 1, 2)))
    draft.put("host.cores", draft.one((4, 16, 128)))
    draft.put_some(
        ("cluster.engines_per_gpu", 0.08, (2, 4)),
        ("cluster.memory_shares", 0.1, ("rate",)),
        ("cluster.failures", 0.15, values.FAILURES),
        ("cluster.stragglers", 0.15, values.STRAGGLERS),
        ("cluster.slow_links", 0.15, values.SLOW_LINKS),
        ("cluster.status_every_s", 0.15, (0.2, 2)),
        ("cluster.max_outstanding", 0.1, (10, 40)),
        ("cluster.adapter_rps", 0.1, (0.5, 2)),
        ("cluster.adapter_pool", 0.2, ("distributed", "replicated")),
        ("cluster.replica_groups", 0.12, [group.format(path=calibration) for group in values.GROUPS]),
        ("host.memory_bytes", 0.05, ("4.0e+9",)),
        ("cluster.warm_up_adapters", 0.3, (0, 3)),
    )
    draft.put("cluster.start_s", draft.one((0, 0.5)))


def _run(draft: Draft) -> None:
    draft.put("seed", int(draft.rng.integers(100)))
    draft.put("fast_forward", draft.one(("true", "true", "false")))
    draft.put("slo.ttft_s", draft.one((1, 4, 10)))
    draft.put("slo.tpot_s", draft.one(("null", 0.05)))
    draft.put_some(
        ("until_s", 0.15, (2, 5)),
        ("until_missed", 0.05, (0.1, 0.4)),
        ("perfetto", 0.2, ("true",)),
        ("timeline", 0.05, ("false",)),
        ("speedup", 0.05, (2,)),
    )
    if draft.slots["scheduler"] == "earliest_deadline" or draft.happens(0.1):
        draft.put(*values.CLASSES.split("=", 1))


def _mend_memory(draft: Draft) -> None:
    """Set what the memory of a replica needs for its policies."""
    if draft.replica("full_copies") == "true":
        draft.put("replica.adapter_memory", "unified")
    if draft.slots["kernel"] == "vllm" or draft.slots["eviction"] == "lru_in_turn":
        draft.put("replica.max_lora_rank", 128 if draft.keys["workload"] == "loraserve_production" else 64)
        draft.put("replica.max_loras", draft.one((2, 4, 8)))
    if draft.slots["eviction"] == "lru_in_turn":
        draft.put("replica.adapter_memory", "slots")
    if draft.slots["loader"] == "predictive":
        draft.put("loader.period_s", draft.one((0.1, 0.5, 2)))
        draft.put("loader.threshold", draft.one((0.1, 0.3)))
    if draft.slots["eviction"] in SWAPPERS:
        draft.put("replica.prefix_caching", "true")
        draft.put("replica.adapter_memory", "unified")
        if draft.happens(0.7):
            draft.put("replica.host_kv_bytes", draft.one(("5.0e+8", "4.0e+9")))
    _mend_region(draft)
    if draft.replica("reserve") == "padded" and draft.slots["scheduler"] in (*PAUSING, *CHUNKED):
        draft.put("replica.reserve", "paged")
    if draft.replica("prefix_caching") == "true" and draft.replica("reserve") not in ("full", "paged"):
        draft.put("replica.reserve", draft.one(("full", "paged")))
    if "replica.max_cpu_loras" in draft.keys and draft.replica("max_loras") not in ("None", "null"):
        draft.put("replica.max_cpu_loras", int(draft.replica("max_loras")) + draft.one((0, 4)))


def _mend_region(draft: Draft) -> None:
    """Give adapters in memory of their own that memory, and the eviction and loader that go with it."""
    memory = draft.replica("adapter_memory")
    if memory in ("contiguous", "padded"):
        if draft.slots["scheduler"] in PAUSING or {"eviction", "loader"} & draft.base.bound:
            draft.put("replica.adapter_memory", "partition")
        elif draft.slots["eviction"] != "on_demand" or draft.slots["loader"] in AHEAD:
            for slot, choice in (("eviction", "on_demand"), ("loader", "blocking")):
                draft.slots[slot] = choice
                draft.put(slot, choice)
        draft.put("replica.adapter_region_tokens", draft.one((1500, 3000)))
    elif memory == "partition":
        draft.put("replica.adapter_region_tokens", draft.one((1500, 3000)))
    elif memory == "slots":
        draft.put("replica.max_lora_rank", 128 if draft.keys["workload"] == "loraserve_production" else 64)
        if draft.replica("max_loras") in ("None", "null"):
            draft.put("replica.max_loras", draft.one((2, 4, 8)))


def _mend_cluster(draft: Draft) -> None:
    """Drop what does not go with the rest of a cluster."""
    keys, slots = draft.keys, draft.slots
    if draft.name == "vllm_packed":
        for key in ("cluster.replicas", "cluster.engines_per_gpu"):
            draft.put(key, 4)
        draft.put("cluster.memory_shares", draft.one(("equal", "rate")))
    if draft.distributed:
        keys.pop("replica.max_cpu_loras", None)
        if slots["loader"] == "cpu_assisted":
            draft.put("cluster.adapter_pool", "replicated")
    if slots["autoscaler"] != "fixed":
        keys.pop("cluster.engines_per_gpu", None)
        if slots["migration"] != "stay" or draft.replica("adapter_memory") in ("contiguous", "padded"):
            slots["autoscaler"] = keys["autoscaler"] = "fixed"
    if keys.get("cluster.engines_per_gpu", "1") != "1":
        keys["replica.tp"] = "1"
        for key in (*values.INCIDENTS, "replica_groups"):
            keys.pop(f"cluster.{key}", None)
    _mend_groups(draft)
    replicas, hosts = int(keys["cluster.replicas"]), int(keys["host.replicas"])
    if "1" in keys.get("cluster.stragglers", "") and replicas < 2:
        keys.pop("cluster.stragglers")
    if "host: 1" in keys.get("cluster.failures", "") and replicas <= hosts:
        keys.pop("cluster.failures")
    _put_apart(draft)
    _put_lora_server(draft)
    _put_beyond(draft)


def _put_apart(draft: Draft) -> None:
    """Have some replicas prefill for the others, where all else goes with it."""
    keys, slots, replicas = draft.keys, draft.slots, int(draft.keys["cluster.replicas"])
    goes = (
        replicas > 1
        and draft.rests(placement="replicate_all")
        and slots["scheduler"] not in MERGING
        and keys.get("cluster.engines_per_gpu", "1") == "1"
        and slots["eviction"] not in SWAPPERS
        and draft.replica("reserve") != "padded"
    )
    caches = draft.replica("prefix_caching") == "true"
    if goes and draft.happens(0.9 if caches else 0.3):  # few others have both
        keys.pop("cluster.failures", None)
        if caches and draft.happens(0.4):
            draft.put("replica.host_kv_bytes", "0")
        draft.put("cluster.prefill_replicas", draft.one((1, replicas - 1)))
        draft.put("cluster.kv_handover", draft.one(KV_HANDOVERS))
        draft.put("cluster.network", draft.one(values.NETWORKS))
        draft.put("router@decode_router", draft.one(DECODE_ROUTERS))
        if draft.replica("reserve") == "paged" and slots["loader"] != "cpu_assisted" and draft.happens(0.5):
            draft.put("cluster.mixed_pool_tokens", draft.one((200, 2000)))


def _put_lora_server(draft: Draft) -> None:
    """Have GPUs of their own hold the adapters, where all else goes with it or can be dropped."""
    keys, slots = draft.keys, draft.slots
    goes = (
        draft.rests()
        and slots["scheduler"] not in MERGES
        and slots["eviction"] not in SWAPPERS
        and not draft.distributed
        and keys.get("cluster.engines_per_gpu", "1") == keys["replica.tp"] == "1"
        and draft.replica("adapter_memory") == "unified"
        and draft.replica("full_copies") == "false"
        and "loader" not in draft.base.bound
    )
    if goes and draft.happens(0.5):
        for key in (*values.INCIDENTS, "replica_groups"):
            keys.pop(f"cluster.{key}", None)
        keys.pop("replica.max_cpu_loras", None)
        slots["loader"] = "cached"
        draft.put("loader", "cached")
        draft.put("cluster.lora_server_gpus", draft.one((1, 2)))
        draft.put("cluster.network", draft.one(values.NETWORKS))


def _put_beyond(draft: Draft) -> None:
    """Add a draft, tiers of KV, clients that react, fewer bits and experts, where all else goes with it."""
    keys, slots = draft.keys, draft.slots
    alone = keys.get("cluster.engines_per_gpu", "1") == "1"
    plain = slots["scheduler"] not in MERGES
    proposes = alone and plain and "cluster.lora_server_gpus" not in keys
    if proposes and draft.replica("reserve") != "padded" and draft.happens(0.2):
        _put_drawn(draft, values.SPECULATION)
        if keys["replica.tp"] == "1" and "cluster.replica_groups" not in keys and draft.happens(0.3):
            draft.put("speculation.draft", values.DRAFT)
    hosts_keep = draft.replica("prefix_caching") == "true" and draft.replica("host_kv_bytes") not in (
        "0",
        "0.0",
    )
    if hosts_keep and slots["eviction"] not in SWAPPERS:
        draft.put("replica.host_kv_write_policy", draft.one(WRITE_POLICIES))
    if alone and hosts_keep and draft.happens(0.5):
        _put_drawn(draft, values.TIERS)
    if not {"until_missed", "cluster.prefill_replicas"} & keys.keys() and draft.happens(0.15):
        _put_drawn(draft, values.CLIENTS)
        if keys["clients.outstanding"] == "null":
            keys.pop("clients.think_s")  # between the calls of a closed loop
    if plain and draft.replica("full_copies") == "false" and draft.happens(0.1):
        draft.put("replica.adapter_bits", draft.one((8, 4)))
    if draft.replica("full_copies") == "false" and draft.happens(0.15):
        draft.put("replica.target_modules", draft.one(values.MODULES))
    if draft.replica("full_copies") == "false" and draft.happens(0.1):
        draft.put("+model.experts", 4)
        draft.put("+model.experts_per_token", draft.one((1, 2)))
        if keys["replica.tp"] == "2":
            draft.put("replica.expert_parallel", draft.one(("true", "false")))


def _put_drawn(draft: Draft, options: Mapping[str, Sequence[Any]]) -> None:
    for key, choices_of_key in options.items():
        draft.put(key, draft.one(choices_of_key))


def _mend_groups(draft: Draft) -> None:
    """Replicas on other GPUs need others beside them, a calibration for one GPU each, and policies that know kinds."""
    keys, slots = draft.keys, draft.slots
    if "cluster.replica_groups" not in keys:
        return
    alike = slots["placement"] in ("rank_demand", "burst_tolerance") or slots["migration"] != "stay"
    if alike or keys["cluster.replicas"] == "1" or keys["replica.tp"] == "2":
        keys.pop("cluster.replica_groups")


def _needed(slot: str, choice: str) -> bool:
    """Whether a choice cannot be simulated without its arguments, or would simulate replicas to find them."""
    return (slot, choice) in (("autoscaler", "by_schedule"), ("placement", "rank_demand"))


def _scenario(draft: Draft, number: int) -> Scenario:
    keys = dict(draft.keys)
    for (slot, choice), arguments in values.ARGUMENTS.items():
        if draft.slots[slot] == choice and (_needed(slot, choice) or draft.happens(0.8)):
            for argument in arguments:
                key, value = argument.split("=", 1)
                keys.setdefault(key, value)
    overrides = (f"system={draft.name}", *(f"{key}={value}" for key, value in keys.items()))
    counted = ("reserve", "adapter_memory", "preemption", "prefix_caching")
    chosen = {"system": draft.name, "workload": keys["workload"], **draft.slots}
    chosen |= {f"replica.{key}": draft.replica(key) for key in counted}
    shown = ("fast_forward", "perfetto", "replica.max_cpu_loras", "replica.tp")
    chosen |= {key: keys[key] for key in shown if key in keys}
    chosen |= {key: "set" for key in keys if key.startswith("cluster.") or key in ("until_s", "until_missed")}
    return Scenario(number, overrides, chosen)
