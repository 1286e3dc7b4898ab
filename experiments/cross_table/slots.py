"""In which slots two systems differ, and what a system carries with one of its slots as another system has it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from experiments.cross_table.capacities import Reading, Span, search, span, times
from experiments.cross_table.compared import Cell, Row
from experiments.cross_table.world import System, Workload, World
from experiments.studies.reading import load
from simlora.api.preparing import composed, ready
from simlora.core.errors import InputError

POLICIES = ("scheduler", "loader", "eviction", "router", "placement", "migration")
OF_REPLICAS: Mapping[str, Sequence[str]] = load(Path(__file__).with_suffix(".yaml"))
"""Slots that are keys of a replica, or of the cluster: what belongs together is exchanged together."""

TOLD = 3
"""Keys of a slot that are told where its name does not tell: a table's cell holds no more."""
LOOKED_FOR = "operating_points"
"""Of a placement, which are found before its run."""


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

    What cannot be exchanged alone, as memory where eviction decides over KV that the base does not keep, goes with the
    first other slot that makes it one that simlora runs; where there is none, it is refused.
    """
    own, others = _slots(world, system, workload), _slots(world, base, workload)
    slots = [slot for slot in own if own[slot] != others[slot]]

    def exchanged(*changed: str) -> Exchange:
        """Return a system all of whose slots are said: what its own file sets besides does not stay behind."""
        whole = own | {slot: others[slot] for slot in changed}
        name, settings = ", ".join(changed), dict(base.settings)
        for slot in whole.values():
            settings |= slot
        had, has = (
            "; ".join(_told(mine[slot], theirs[slot]) for slot in changed)
            for mine, theirs in ((own, others), (others, own))
        )
        without = System(f"{system.name} without its {name}", system.title, settings)
        return Exchange(name, had, has, without, refusal(world, without, workload))

    found = []
    for slot in slots:
        alone = exchanged(slot)
        tried = (exchanged(*sorted((slot, beside), key=slots.index)) for beside in slots if beside != slot)
        found.append(next((one for one in tried if not one.refused), alone) if alone.refused else alone)
    return list({one.slot: one for one in found}.values())  # two may need each other


def refusal(world: World, system: System, workload: Workload) -> str:
    """Return why simlora refuses a system on a workload; nothing if it does not."""
    try:
        ready(*composed([*world.overrides(system, workload), workload.at_start]))
    except InputError as error:
        return str(error)
    return ""


def slim(world: World, system: System, base: System, workload: Workload) -> System:
    """Return a system that says only the slots in which it differs from `base`, and of keys those that differ."""
    own, others = _slots(world, system, workload), _slots(world, base, workload)
    settings = dict(base.settings)
    for name, slot in own.items():
        whole = name in POLICIES and slot[name] != others[name][name]
        settings |= {key: value for key, value in slot.items() if whole or others[name].get(key) != value}
    return System(system.name, system.title, settings)


def differing(world: World, system: System, base: System, workload: Workload) -> list[str]:
    """Return the slots in which a system differs from `base`."""
    own, others = _slots(world, system, workload), _slots(world, base, workload)
    return [name for name in own if own[name] != others[name]]


Slot = Mapping[str, Any]
"""What a slot sets, by key; a policy by its group, and its parameters."""


def _slots(world: World, system: System, workload: Workload) -> dict[str, Slot]:
    config, choices = composed([*world.overrides(system, workload), workload.at_start])
    found: dict[str, Slot] = {}
    for name in POLICIES:
        left_out = {
            "_target_",
            LOOKED_FOR,
            *_following(name, choices[name], _plain(config[name], resolve=False)),
        }
        plain = _plain(config[name], resolve=True)
        own = {f"{name}.{key}": value for key, value in plain.items() if key not in left_out}
        found[name] = {name: choices[name], **own}
    for name, keys in OF_REPLICAS.items():
        found[name] = {key: OmegaConf.select(config, key) for key in keys}
    return found


def _following(slot: str, choice: str, own: Mapping[str, Any]) -> list[str]:
    """Return which keys of a policy follow from others, as targets of the SLO do, as its own file says they shall."""
    usual = ordinary(slot, choice)
    return [key for key, value in own.items() if str(value).startswith("${") and usual.get(key) == value]


@cache
def ordinary(slot: str, choice: str) -> Mapping[str, Any]:
    """Return a policy as its file has it."""
    return _plain(composed([f"{slot}={choice}"])[0][slot], resolve=False)


def _plain(tree: Any, resolve: bool) -> dict[str, Any]:
    found = OmegaConf.to_container(tree, resolve=resolve)
    assert isinstance(found, dict)
    return {str(key): value for key, value in found.items()}


def _told(slot: Slot, other: Slot) -> str:
    """Return what a slot has and the other has not, in words: a policy by its name alone where the name tells."""
    differing = {key: value for key, value in slot.items() if other.get(key, "") != value}
    named = next((str(value) for key, value in differing.items() if "." not in key), "")
    keys = [f"{key.partition('.')[2]} {_shown(key, value)}" for key, value in differing.items()]
    return named or ", ".join([*keys[:TOLD], *(["…"] if len(keys) > TOLD else [])])


def _shown(key: str, value: Any) -> str:
    return f"{value / 1e9:g} GB" if key.endswith("_bytes") and value is not None else str(value)


@dataclass(frozen=True)
class Part:
    """What one slot does for a system: how many times as much it carries with the slot as another has it, by seed.

    Nothing where simlora refuses that.
    """

    exchange: Exchange
    by_seed: Mapping[int, Reading]

    @property
    def kept(self) -> Span:
        """The mean over seeds, and its interval; NaN where simlora refuses that."""
        return span(self.by_seed.values()) if self.by_seed else Span(math.nan, math.nan, math.nan)


def parts(
    world: World,
    cells: Sequence[tuple[Row, Cell]],
    swaps: Sequence[Sequence[Exchange]],
    seeds: Sequence[int],
    jobs: int = -1,
) -> list[list[Part]]:
    """Return for each system on a workload what each exchange does, the most first; last what cannot be run."""
    asked = [
        (one.system, row.workload, cell.carried[seeds[0]].met_rps)
        for (row, cell), own in zip(cells, swaps, strict=True)
        for one in own
        if not one.refused
    ]
    near = {(system.name, workload.name): rate_rps for system, workload, rate_rps in asked}
    found = search(world, [(system, workload) for system, workload, _ in asked], seeds, jobs, near)

    def part(row: Row, cell: Cell, exchange: Exchange) -> Part:
        changed = found.get((exchange.system.name, row.workload.name), {})
        return Part(exchange, times(changed, cell.carried))

    return [
        sorted(
            (part(row, cell, exchange) for exchange in own),
            key=lambda one: (bool(one.exchange.refused), one.kept.mean),
        )
        for (row, cell), own in zip(cells, swaps, strict=True)
    ]
