"""What a system composes, so that exchanged slots and replica limits can be made to fit it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, NamedTuple

import yaml
from omegaconf import OmegaConf

from simlora.config.composing import FOLDER, choices, compose

SLOTS = ("scheduler", "loader", "eviction", "kernel", "router", "placement", "migration", "autoscaler")


class System(NamedTuple):
    """The choice of each slot, the slots whose keys the system sets itself, and the section `replica`."""

    slots: Mapping[str, str]
    bound: frozenset[str]
    replica: Mapping[str, Any]
    distributed: bool


def systems() -> list[str]:
    """Return the names of all systems."""
    return choices("system")


@cache
def system(name: str) -> System:
    """Return what a system composes."""
    config, chosen = compose([f"system={name}"])
    slots = {slot: chosen[slot] for slot in SLOTS}
    bound = frozenset(slot for slot in SLOTS if _keys(config[slot]) != _file(slot, slots[slot]))
    replica = OmegaConf.to_container(config["replica"], resolve=False)
    assert isinstance(replica, dict)
    pool = config["cluster"]["adapter_pool"]
    return System(slots, bound, {str(key): value for key, value in replica.items()}, pool == "distributed")


def _keys(section: Any) -> Any:
    return OmegaConf.to_container(section, resolve=False)


def _file(slot: str, choice: str) -> Any:
    return yaml.safe_load((FOLDER / slot / f"{choice}.yaml").read_text(encoding="utf-8"))
