"""The world that all systems are put into: hardware, SLO, workloads and systems, as world.yaml has them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from experiments.studies.points import ALWAYS, written
from experiments.studies.reading import check, known, listed, load
from simlora.sweeps.outcome import Overrides

WORLD = Path(__file__).with_name("world.yaml")
TRAINING, HELD_OUT, UNSEEN = "training", "held_out", "unseen"
LENGTHS = ("workload.requests", "workload.duration_s")


@dataclass(frozen=True)
class Workload:
    """Requests of one paper. `key` is their rate, `start` the one from which capacities are searched, in requests/s."""

    name: str
    title: str
    paper: str
    part: str
    about: str
    key: str
    start: float
    settings: Mapping[str, Any]

    @property
    def at_start(self) -> str:
        """The override of the rate from which capacities are searched."""
        return f"{self.key}={self.start}"

    def shortened(self, share: float) -> Workload:
        """Return the same workload with a share of its requests, or of its duration."""
        length = next(key for key in LENGTHS if self.settings.get(key) is not None)
        whole = self.settings[length] * share
        return replace(self, settings={**self.settings, length: round(whole)})


@dataclass(frozen=True)
class System:
    """A system as published, or a composition: what it sets, and what it leaves free, each with the values to try."""

    name: str
    title: str
    settings: Mapping[str, Any]
    free: Mapping[str, Sequence[Any]] = field(default_factory=dict)


@dataclass(frozen=True)
class World:
    """What is the same for all systems, and what they are put to."""

    same: Mapping[str, Any]
    workloads: Mapping[str, Workload]
    systems: Mapping[str, System]

    def overrides(self, system: System, workload: Workload) -> Overrides:
        """Return one system on one workload, without a rate. What is the same for all wins over the system's own."""
        settings = {**system.settings, **self.same, **workload.settings, **ALWAYS}
        return tuple(f"{key}={written(value)}" for key, value in settings.items())

    def but(self, changed: Mapping[str, Any]) -> World:
        """Return a world in which something else is the same for all."""
        return replace(self, same={**self.same, **changed})

    def of(self, part: str) -> list[Workload]:
        """Return the workloads that compositions are searched on, or judged on."""
        return [workload for workload in self.workloads.values() if workload.part == part]


def read(path: Path = WORLD) -> World:
    """Read a world. Raises InputError, naming file and key, for what is not said right."""
    tree = check(load(path), str(path), ("hardware", "slo", "workloads", "systems"))
    return World(
        same={**tree["hardware"], **tree["slo"]},
        workloads={
            name: workload_of(name, entry, f"{path}: workload {name}", (TRAINING, HELD_OUT))
            for name, entry in tree["workloads"].items()
        },
        systems={
            name: _system(name, entry, f"{path}: system {name}") for name, entry in tree["systems"].items()
        },
    )


def workload_of(name: str, tree: Any, place: str, parts: Sequence[str]) -> Workload:
    """Return a workload for one of some `parts`. Raises InputError, naming `place`, for what is not said right."""
    entry = check(tree, place, ("title", "paper", "for", "about", "key", "start", "set"))
    part = known(entry["for"], parts, f"{place}.for")
    facts = (entry[key] for key in ("about", "key", "start", "set"))
    return Workload(name, entry["title"], entry["paper"], part, *facts)


def _system(name: str, tree: Any, place: str) -> System:
    entry = check(tree, place, ("title", "system"), ("set", "tune"))
    free = {key: listed(values) for key, values in entry.get("tune", {}).items()}
    return System(name, entry["title"], {"system": entry["system"], **entry.get("set", {})}, free)
