"""In which slots two systems differ, and a system with one of its slots as another system has it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from omegaconf import OmegaConf

from experiments.cross_table.world import System, Workload, World
from simlora.api.preparing import composed, ready
from simlora.core.errors import InputError

POLICIES = ("scheduler", "loader", "eviction", "router", "placement", "migration")
OF_REPLICAS: Mapping[str, tuple[str, ...]] = {
    "memory": (
        "replica.reserve",
        "replica.block_tokens",
        "replica.watermark",
        "replica.preemption",
        "replica.prefix_caching",
        "replica.host_kv_bytes",
        "replica.adapter_memory",
        "replica.adapter_region_share",
        "replica.adapter_tokens",
        "replica.max_lora_rank",
    ),
    "admission": ("replica.admit_every",),
    "prefill": ("replica.max_prefill_tokens",),
    "batch": ("replica.max_batch_size", "replica.max_adapters"),
    "adapter pool": ("cluster.adapter_pool",),
}
"""Slots that are keys of a replica, or of the cluster: what belongs together is exchanged together."""


@dataclass(frozen=True)
class Exchange:
    """A system with one slot as another has it: what it had, and what it has now. `refused`: why it cannot be run."""

    slot: str
    had: str
    has: str
    system: System
    refused: str = ""


def exchanges(world: World, system: System, base: System, workload: Workload) -> list[Exchange]:
    """Return a system once for each slot in which it differs from `base`, with that slot as `base` has it.

    Where memory cannot be exchanged alone, as eviction decides over KV that the base does not keep, eviction goes with
    it.
    """
    own, others = _slots(world, system, workload), _slots(world, base, workload)
    differing = {slot: others[slot] for slot in own if own[slot] != others[slot]}
    found = []
    for slot in differing:
        exchange = _exchanged(world, system, workload, {slot: own[slot]}, {slot: others[slot]})
        if exchange.refused and slot == "memory" and "eviction" in differing:
            pair = ("memory", "eviction")
            exchange = _exchanged(
                world,
                system,
                workload,
                {name: own[name] for name in pair},
                {name: others[name] for name in pair},
            )
        found.append(exchange)
    return found


Slot = Mapping[str, Any]
"""What a slot sets, by key; a policy by its group, and its parameters."""


def _slots(world: World, system: System, workload: Workload) -> dict[str, Slot]:
    config, choices = composed([*world.overrides(system, workload), f"{workload.key}={workload.start}"])
    found: dict[str, Slot] = {}
    for name in POLICIES:
        plain = OmegaConf.to_container(config[name], resolve=True)
        assert isinstance(plain, dict)
        found[name] = {name: choices[name]} | {
            f"{name}.{key}": value for key, value in plain.items() if key != "_target_"
        }
    for name, keys in OF_REPLICAS.items():
        found[name] = {key: OmegaConf.select(config, key) for key in keys}
    return found


def _exchanged(
    world: World, system: System, workload: Workload, own: Mapping[str, Slot], others: Mapping[str, Slot]
) -> Exchange:
    dropped = {key for slot in own.values() for key in slot}
    kept = {key: value for key, value in system.settings.items() if key not in dropped}
    put = {
        key: value
        for slot in others.values()
        for key, value in slot.items()
        if key != "placement.operating_points"
    }
    name = ", ".join(own)
    changed = System(f"{system.name} without its {name}", system.title, {**kept, **put})
    refused = ""
    try:
        ready(*composed([*world.overrides(changed, workload), f"{workload.key}={workload.start}"]))
    except InputError as error:
        refused = str(error)
    pairs = [(own[slot], others[slot]) for slot in own]
    had = "; ".join(_told(slot, other) for slot, other in pairs)
    return Exchange(name, had, "; ".join(_told(other, slot) for slot, other in pairs), changed, refused)


def _told(slot: Slot, other: Slot) -> str:
    """Return what a slot has and the other has not, in words: a policy by its name alone where the name tells."""
    differing = {key: value for key, value in slot.items() if other.get(key, "") != value}
    named = next((str(value) for key, value in differing.items() if "." not in key), "")
    return named or ", ".join(f"{key.partition('.')[2]} {value}" for key, value in differing.items())
