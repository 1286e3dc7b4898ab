"""Published systems tuned to this world: what they leave free has the values that carry most on the training workloads.

A composition that is searched for has such values too. Both are scored alike, and may have the same ones.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import product
from statistics import fmean
from typing import Any, NamedTuple

from omegaconf import OmegaConf

from experiments.cross_table.capacities import Carried, search
from experiments.cross_table.world import System, Workload, World
from simlora.api.preparing import composed

SEED = 100
"""Of the workloads that are tuned and searched on; what is compared and judged has others."""
SHORT = 1 / 3
"""Of a workload's length."""
FLOOR_RPS = 0.1
"""What counts for a system that cannot keep the SLO at any rate: the logarithm of 0 cannot be averaged."""


class Tuned(NamedTuple):
    """A system, and what it carries on each of the shorter training workloads."""

    system: System
    carried: Mapping[str, Carried]

    @property
    def score(self) -> float:
        """The mean over workloads of the logarithm of the capacity."""
        return score(self.carried.values())


def tuned(
    world: World, systems: Sequence[System], training: Sequence[Workload], jobs: int = -1
) -> list[Tuned]:
    """Return the systems with the best value of each key that they leave free.

    One key after the other, in the order in which they are listed: from the system's own value on, down and up through
    those listed, until one carries less than what is best so far. Its own stays where others carry no more. What all
    systems try next is searched at once, so that no core waits for the searches of one system.
    """
    plain = [System(system.name, system.title, system.settings) for system in systems]
    begun = carried(world, plain, training, jobs)
    best = {one.name: Tuned(one, begun[one.name]) for one in plain}
    climbs = {system.name: _climb(world, system, best[system.name], training[0]) for system in systems}
    tried: dict[str, list[Tuned]] = {}
    while True:
        asked = {}
        for name, climb in climbs.items():
            try:
                asked[name] = climb.send(tried[name]) if name in tried else next(climb)
            except StopIteration as ended:
                best[name] = ended.value
        climbs = {name: climbs[name] for name in asked}
        if not climbs:
            return list(best.values())
        every = [(version, expected) for versions, expected in asked.values() for version in versions]
        near = {(one.name, name): rate.met_rps for one, expected in every for name, rate in expected.items()}
        found = carried(world, [version for version, _ in every], training, jobs, near)
        tried = {
            name: [Tuned(replace(one, name=name), found[one.name]) for one in versions]
            for name, (versions, _) in asked.items()
        }


Tries = tuple[Sequence[System], Mapping[str, Carried]]
"""Versions of a system, and what each is expected to carry, about, by workload."""


def _climb(
    world: World, system: System, best: Tuned, workload: Workload
) -> Generator[Tries, list[Tuned], Tuned]:
    """Yield what to try next, receive what that carries, and return the best."""
    for key, values in system.free.items():
        config, _ = composed([*world.overrides(system, workload), workload.at_start])
        ways = ways_from(OmegaConf.select(config, key), values)
        while ways:
            versions = [
                replace(
                    best.system,
                    name=f"{system.name} with {key} {way[0]}",
                    settings={**best.system.settings, key: way[0]},
                )
                for way in ways
            ]
            each = yield versions, best.carried
            ways = [
                way[1:] for way, one in zip(ways, each, strict=True) if way[1:] and one.score >= best.score
            ]
            best = max((best, *each), key=lambda one: one.score)
    return best


Ways = Sequence[Sequence[Any]]
"""From a system's own value on: the values to try one after the other, each way until one carries less."""


def ways_from(own: Any, values: Sequence[Any]) -> Ways:
    """Return the ways through numbers, down and up, null as above all; to what has no place among them a way each."""
    if isinstance(own, bool) or not isinstance(own, int | float):
        return [[value] for value in values if value != own]

    def place(value: Any) -> float:
        return math.inf if value is None else float(value)

    below = sorted((value for value in values if place(value) < own), key=place, reverse=True)
    above = sorted((value for value in values if place(value) > own), key=place)
    return [way for way in (below, above) if way]


def carried(
    world: World,
    systems: Sequence[System],
    training: Sequence[Workload],
    jobs: int = -1,
    near: Mapping[tuple[str, str], float] | None = None,
) -> dict[str, dict[str, Carried]]:
    """Return what every system carries on shorter training workloads, by its name and the workload's.

    `near`: what one is expected to, in requests/s by the same names.
    """
    short = [workload.shortened(SHORT) for workload in training]
    found = search(world, product(systems, short), [SEED], jobs, near)
    return {
        system.name: {workload.name: found[system.name, workload.name][SEED] for workload in short}
        for system in systems
    }


def score(of_workloads: Iterable[Carried]) -> float:
    """Return the mean logarithm of the capacities."""
    return fmean(math.log(max(one.met_rps, FLOOR_RPS)) for one in of_workloads)


def told(system: System, before: System) -> str:
    """Return what a system was tuned to that had other values before: `router.slack 16`; nothing if all stayed."""
    return ", ".join(
        f"{key} {value}" for key, value in system.settings.items() if before.settings.get(key, "") != value
    )
