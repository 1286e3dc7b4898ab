"""What a system composes, so that exchanged slots and replica limits can be made to fit it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, NamedTuple

from omegaconf import OmegaConf

from experiments.studies.reading import load
from simlora.config.composing import FOLDER, compose

SLOTS = ("scheduler", "loader", "eviction", "kernel", "router", "placement", "migration", "autoscaler")


class System(NamedTuple):
    """The choice of each slot, the slots whose keys the system sets itself, and the section `replica`."""

    slots: Mapping[str, str]
    bound: frozenset[str]
    replica: Mapping[str, Any]
    distributed: bool


@cache
def system(name: str) -> System:
    """Return what a system composes."""
    config, chosen = compose([f"system={name}"])
    slots = {slot: chosen[slot] for slot in SLOTS}
    own: Any = {slot: OmegaConf.to_container(config[slot]) for slot in (*SLOTS, "replica")}
    bound = frozenset(slot for slot in SLOTS if own[slot] != load(FOLDER / slot / f"{slots[slot]}.yaml"))
    return System(slots, bound, own["replica"], config["cluster"]["adapter_pool"] == "distributed")
