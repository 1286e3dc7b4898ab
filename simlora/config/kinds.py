"""Replicas on other GPUs than the rest, or with other limits."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from omegaconf import OmegaConf

from simlora.config.calibration import calibration_for
from simlora.config.composing import FOLDER, choices
from simlora.config.making import make
from simlora.config.names import close_keys
from simlora.config.reading import Tree
from simlora.config.replica import OF_ALL, REPLICA_KEYS, SPECULATES_NOT, Speculates, replica_config
from simlora.core.checks import shown, whole
from simlora.core.errors import InputError, nearest
from simlora.engine.scenario import Kind
from simlora.hardware.gpu import Gpu
from simlora.hardware.model import ModelShape
from simlora.latency.calibration import Calibration
from simlora.latency.kernels import Kernel

GROUPS = "cluster.replica_groups"
SHORT = ("tp", "kv_token_budget")
"""Keys of the section `replica` that a group may also give beside it."""
KEYS = ("replicas", "gpu", "replica", "calibration", *SHORT)
SHARED = (
    "target_modules",
    "full_copies",
    *OF_ALL,
    "adapter_memory",
    "reserve",
    "prefix_caching",
    "adapter_tokenizers",
)
"""Keys of the section `replica` that hold for all replicas.

The first two say what an adapter is. How memory is divided and charged, and whether KV is cached, decide what is
recorded of it, in the same columns for every replica. All replicas have one front end.
"""
EXAMPLE = "such as [{gpu: a100_80g, replicas: 2}]"

KernelWith = Callable[[Mapping[str, Any], Calibration], Callable[[Calibration], Kernel]]
"""Returns what makes the kernels of replicas with these keys of the section `replica`, tried with a calibration."""


def other_kinds(
    tree: Tree,
    limits: Mapping[str, Any],
    gpu: Gpu,
    model: ModelShape,
    chunks: bool,
    kernel: KernelWith,
    speculates: Speculates = SPECULATES_NOT,
    apart: bool = False,
) -> tuple[tuple[Kind, ...], list[str]]:
    """Return the kinds that cluster.replica_groups lists, and notices about their calibrations.

    `replicas` must be there. `gpu`, a name or a section like `gpu`, is the base replica's unless it is given, and
    `replica` has the keys of that section that differ from the base replica's `limits`; `tp` and `kv_token_budget` may
    stand beside it. `kv_token_budget` is what the GPU has left, and the `calibration` that of the GPU, the model and
    tp, unless they are given, or both gpu and tp are the base replica's. Raises InputError for anything else.
    """
    value = tree["cluster"].get("replica_groups")
    if not isinstance(value, list):
        raise InputError(f"{GROUPS} is {shown(value)}, must be a list, {EXAMPLE}")
    kinds, notices = [], []
    for each in value:
        own = _own_limits(each)
        if "max_lora_rank" in own and limits.get("adapter_memory") != "slots":
            raise InputError(
                f"{GROUPS} has replica.max_lora_rank, which needs replica.adapter_memory=slots, as system=vllm has it"
            )
        on = _gpu(each["gpu"]) if "gpu" in each else gpu
        alike = "gpu" not in each and own.get("tp", limits.get("tp")) == limits.get("tp")
        whole_limits = {**limits, **({} if alike else {"kv_token_budget": None}), **own}
        calibration_key = each.get("calibration", tree["calibration"] if alike else None)
        try:
            config = replica_config(whole_limits, on, model, 1, chunks, speculates)
            calibration, differs = calibration_for(
                calibration_key, on, model, config, tree["engine"], apart=apart
            )
            make_kernel = kernel(whole_limits, calibration)
        except InputError as error:
            raise type(error)(f"{GROUPS}: on {on.name}, {error}") from error
        count = whole(f"replicas of {GROUPS}", each["replicas"], "replicas", least=1)
        kinds.append(
            Kind(replicas=count, replica=config, calibration=calibration, gpu=on, kernel=make_kernel)
        )
        notices += differs
    return tuple(kinds), notices


def _own_limits(group: Any) -> dict[str, Any]:
    """Return the keys of the section `replica` that a group gives, in either place."""
    if not isinstance(group, dict) or "replicas" not in group:
        raise InputError(
            f"{GROUPS} has {shown(group)}, must have replicas, and may have gpu, replica, tp, calibration and "
            f"kv_token_budget, {EXAMPLE}"
        )
    for key in group:
        if key not in KEYS:
            names = [f"{GROUPS}.{name}" for name in KEYS]
            raise InputError(f"there is no key {GROUPS}.{key}; {_hint(str(key), names)}")
    own: dict[str, Any] = group.get("replica", {})
    _check_own(own)
    for key in SHORT:
        if key in group and key in own:
            raise InputError(f"{GROUPS} gives both {key} and replica.{key}, must give one of them")
    return own | {key: group[key] for key in SHORT if key in group}


def _check_own(own: Any) -> None:
    """Raise InputError for a key that the section `replica` does not have, or that all replicas share."""
    if not isinstance(own, dict):
        raise InputError(f"replica of {GROUPS} is {shown(own)}, must have keys, such as {{max_num_seqs: 64}}")
    for key in own:
        if key not in REPLICA_KEYS:
            hint = close_keys(f"replica.{key}", [f"replica.{name}" for name in REPLICA_KEYS])
            raise InputError(f"{GROUPS}: there is no key replica.{key}; {hint}")
        if key in SHARED:
            raise InputError(
                f"{GROUPS} has replica.{key}, which holds for all replicas; set replica.{key} outside of the groups"
            )


def _hint(key: str, names: list[str]) -> str:
    """Return what a key of a group was meant to be: one of a group's, or one of the section `replica`."""
    if key in REPLICA_KEYS:
        return f"it goes below replica: {{replica: {{{key}: ...}}}}"
    return close_keys(f"{GROUPS}.{key}", names)


def _gpu(value: Any) -> Gpu:
    if isinstance(value, dict):
        return make({"gpu": value}, "gpu", Gpu)
    known = choices("gpu")
    if value not in known:
        raise InputError(f"gpu of {GROUPS} is {shown(value)}, which is unknown; {nearest(str(value), known)}")
    return make({"gpu": OmegaConf.to_container(OmegaConf.load(FOLDER / "gpu" / f"{value}.yaml"))}, "gpu", Gpu)
