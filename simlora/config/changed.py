"""What was changed of a system: the keys of a configuration that are not as the system alone has them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from simlora.config.composing import compose
from simlora.config.own_folder import KEY as OWN_FOLDER
from simlora.config.reading import plain
from simlora.config.targets import DECODE_ROUTER, POLICIES
from simlora.core.errors import InputError
from simlora.core.trees import branch, leaves

OF_CLUSTER = (
    "adapter_burst",
    "adapter_pool",
    "adapter_rps",
    "engines_per_gpu",
    "kv_fetch",
    "kv_handover",
    "kv_store_bytes",
    "kv_store_servers",
    "lora_server_gpus",
    "max_outstanding",
    "memory_shares",
    "mixed_pool_tokens",
    "prefill_replicas",
    "status_every_s",
)
"""Keys of the cluster that say how a system works; the others say how much there is to serve with, and what fails."""
OF_HOST = ("kv_disk_bytes",)
"""Likewise of the hosts."""
NOT_OF_REPLICA = ("tp",)
"""Keys of a replica that say on how many GPUs it runs, which is told with the GPU."""
MEASURED = "operating_points"
"""A key of a policy that a run measures by simulating where it is not given: giving it changes nothing of a system."""


def changed(config: DictConfig, choices: Mapping[str, str], overrides: Sequence[str] = ()) -> dict[str, Any]:
    """Return the keys of a system's own sections that differ from what the system alone has, with their values.

    A policy that is another one is a key of its slot, with its name: {"scheduler": "lcfs"}; its own keys are compared
    with what that policy has. `choices` are the names chosen by group; of `overrides` only the user's own folder of
    configurations counts. {} for a system that has no name.
    """
    system = choices.get("system")
    if system in (None, "None"):
        return {}
    own = tuple(override for override in overrides if override.startswith(f"{OWN_FOLDER}="))
    alone = _composed.__wrapped__ if own else _composed  # of files of the user's, which may be edited
    try:
        _, chosen = alone((*own, f"system={system}"))
        others = {slot: choices[slot] for slot in POLICIES if choices.get(slot) != chosen.get(slot)}
        before, _ = alone((*own, f"system={system}", *(f"{slot}={name}" for slot, name in others.items())))
    except (HydraException, OmegaConfBaseException, InputError, KeyError):
        return {}  # such as a slot that was taken out, which is refused elsewhere, with its reason
    now = _sections(plain(config, resolve=False))
    now, before = _asked(now, now), _asked(before, now)
    found: dict[str, Any] = dict(others)
    for slot in (*POLICIES, DECODE_ROUTER):
        target = f"{slot}._target_"
        if now.pop(target, None) != before.pop(target, None):
            found[slot] = snake(str(OmegaConf.select(config, target)))
            before = {key: value for key, value in before.items() if not key.startswith(f"{slot}.")}
    differ = (key for key in dict.fromkeys([*before, *now]) if before.get(key) != now.get(key))
    return found | {key: now.get(key) for key in differ}


def _asked(keys: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, Any]:
    """Return the keys that a configuration with those of `now` asks: not of what decodes or drafts, if nothing does."""
    absent = [] if now.get("cluster.prefill_replicas") else [DECODE_ROUTER]
    absent += [] if now.get("speculation.tokens") else ["speculation"]
    return {
        key: value
        for key, value in keys.items()
        if key == "speculation.tokens" or key.partition(".")[0] not in absent
    }


@lru_cache(maxsize=64)  # asked for with every run
def _composed(overrides: tuple[str, ...]) -> tuple[dict[str, Any], dict[str, str]]:
    """Return what these overrides say of how a system works, by dotted places, and the choices; not to be changed."""
    config, choices = compose(overrides)
    return _sections(plain(config, resolve=False)), choices


def snake(target: str) -> str:
    """Return a class as its file is called: `simlora.policies.routing.most_idle.MostIdle` as most_idle."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", target.rpartition(".")[2]).lower()


def _sections(tree: Mapping[str, Any]) -> dict[str, Any]:
    """Return what says how a system works, by dotted places."""
    replica, cluster = branch(tree, "replica"), branch(tree, "cluster")
    sections = {
        **{slot: branch(tree, slot) for slot in (*POLICIES, DECODE_ROUTER)},
        "engine": tree.get("engine"),
        "replica": {key: value for key, value in replica.items() if key not in NOT_OF_REPLICA},
        "cluster": {key: cluster.get(key) for key in OF_CLUSTER},
        "host": {key: branch(tree, "host").get(key) for key in OF_HOST},
        "speculation": branch(tree, "speculation"),
        "parts": tree.get("parts"),
    }
    return {place: value for place, value in leaves(sections) if MEASURED not in place.split(".")}
