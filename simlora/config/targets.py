"""Where a configuration may name code: `_target_` where a policy, a workload or a part stands, and nowhere else."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from omegaconf import DictConfig, ListConfig
from omegaconf.errors import OmegaConfBaseException

from simlora.config.reading import Tree
from simlora.core.checks import shown
from simlora.core.errors import InputError
from simlora.latency.yaml_text import DEEPEST

POLICIES = ("scheduler", "loader", "eviction", "kernel", "router", "placement", "migration", "autoscaler")
DECODE_ROUTER = "decode_router"
"""A second section for a choice of the group `router`: of the replicas that decode, where others prefill."""
KEYS = (
    "gpu",
    "model",
    "workload",
    *POLICIES,
    DECODE_ROUTER,
    "seed",
    "calibration",
    "engine",
    "fast_forward",
    "cluster",
    "clients",
    "speculation",
    "host",
    "replica",
    "slo",
    "until_s",
    "until_missed",
    "speedup",
    "window",
    "parts",
)
"""All keys of what is simulated."""
OUTPUTS = ("report", "timeline", "perfetto", "progress", "cores")
"""Keys that say what is shown, and how the results are computed, not what is simulated."""
OURS = ("gpu", "model", "cluster.replica_groups")
HARDWARE = "simlora.hardware."
"""Sections in which only simlora's own classes for hardware are made."""
OF_HYDRA: Mapping[str, tuple[str, ...]] = {
    "launcher": ("hydra._internal.core_plugins.", "hydra_plugins."),
    "sweeper": ("hydra._internal.core_plugins.", "hydra_plugins."),
    "callbacks": ("simlora.cli.folder.Watch", "hydra.experimental.callbacks."),
}
"""Sections of Hydra's own that it makes objects of, and what these may be."""
LOGS = ("job_logging", "hydra_logging")
LOGGING = ("logging.StreamHandler", "logging.NullHandler", "logging.Formatter", "logging.Filter")
STREAMS = ("ext://sys.stdout", "ext://sys.stderr")
"""What the sections of Hydra's logs may name: nothing that writes files, or sends what is logged."""
_PART = re.compile(r"parts\.\d+")
NAMES = ("_target_", "class", "()")
"""Keys by which Hydra, and `logging.config`, are told what to call."""
PAGE = "docs/configurations.md says where a configuration may name code"


def check_targets(tree: Tree) -> None:
    """Raise InputError for the first `_target_` of a resolved configuration that stands where none is followed."""
    for place, target in targets(tree):
        if place in (*POLICIES, DECODE_ROUTER) or _PART.fullmatch(place) or _within(place, ("workload",)):
            continue
        if not (_within(place, OURS) and str(target).startswith(HARDWARE)):
            raise _refused(place, target)


def _within(place: str, sections: tuple[str, ...]) -> bool:
    return any(f"{place}.".startswith(f"{section}.") for section in sections)


def check_hydras_own(hydra: DictConfig, logs: tuple[str, ...] = LOGS) -> None:
    """Raise InputError for what Hydra would make that is neither its own, a plugin's of it, nor simlora's.

    `logs` are the sections of LOGS by which anything is logged.
    """
    for section in sorted({*map(str, hydra)} - {*OF_HYDRA, *LOGS}):
        for place, target in targets({section: item(hydra, section)}):
            raise _refused(f"hydra.{place}", target)
    for section, known in OF_HYDRA.items():
        for place, target in targets({section: hydra.get(section)}, NAMES):
            if not str(target).startswith(known):
                raise _refused(f"hydra.{place}", target)
    for section in logs:
        for place, target in targets({section: hydra.get(section)}, NAMES):
            if target not in LOGGING:
                raise _refused(f"hydra.{place}", target)
        for place, text in _texts({section: hydra.get(section)}):
            if text.startswith("ext://") and text not in STREAMS:
                raise InputError(f"hydra.{place} is {shown(text)}, must be {' or '.join(STREAMS)}")


def _refused(place: str, target: Any) -> InputError:
    return InputError(f"{place} names {shown(target)} to be called, which is not done there; {PAGE}")


def targets(
    value: Any, names: tuple[str, ...] = NAMES[:1], place: str = "", depth: int = 0
) -> Iterator[tuple[str, Any]]:
    """Yield what is named to be called, and the dotted place of its section."""
    if depth > DEEPEST:
        raise InputError(f"{shown(place)} has more than {DEEPEST} levels, must have fewer")
    if isinstance(value, Mapping | DictConfig):
        for key in value:
            if key in names:
                yield place, item(value, key)
    for key in _keys(value):
        yield from targets(item(value, key), names, f"{place}.{key}" if place else str(key), depth + 1)


def _texts(value: Any, place: str = "") -> Iterator[tuple[str, str]]:
    """Yield all text, and its dotted place."""
    if isinstance(value, str):
        yield place, value
    for key in _keys(value):
        yield from _texts(item(value, key), f"{place}.{key}" if place else str(key))


def _keys(value: Any) -> Iterable[Any]:
    if isinstance(value, list | tuple | ListConfig):
        return range(len(value))
    return value if isinstance(value, Mapping | DictConfig) else ()


def item(value: Any, key: Any) -> Any:
    """Return what is there; of what cannot be resolved nothing, which Hydra is about to say itself."""
    try:
        return value[key]
    except OmegaConfBaseException:
        return None
