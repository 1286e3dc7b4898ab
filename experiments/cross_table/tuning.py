"""Published systems tuned to this world: what they leave free has the values that carry most on the training workloads.

A composition that is searched for has such values too. Both are scored alike, and may have the same ones.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from experiments.cross_table.capacities import Asked, Carried, search
from experiments.cross_table.world import System, Workload, World

SEED = 100
"""Of the workloads that are tuned and searched on; what is compared and judged has others."""
SHORT = 1 / 3
"""Of a workload's length."""
COARSE = 0.015
"""What a capacity is found to."""
STEP = 1.25
"""The first step of a search: most systems carry about as much as where the workload's search starts."""
FLOOR_RPS = 0.1
"""What counts for a system that cannot keep the SLO at any rate: the logarithm of 0 cannot be averaged."""


def tuned(
    world: World, systems: Sequence[System], training: Sequence[Workload], jobs: int = -1
) -> list[System]:
    """Return the systems with the best value of each key that they leave free.

    One key after the other, in the order in which they are listed: it has the best value of those listed and the
    system's own, which stays where others are no better.
    """
    best = [System(system.name, system.title, system.settings) for system in systems]
    for place in range(max((len(system.free) for system in systems), default=0)):
        versions = [
            versions_of(one, *list(system.free.items())[place]) if place < len(system.free) else [one]
            for system, one in zip(systems, best, strict=True)
        ]
        tried = [one for several in versions if len(several) > 1 for one in several]
        found = carried(world, tried, training, jobs)
        scores = {name: score(list(by_workload.values())) for name, by_workload in found.items()}
        best = [
            several[0] if len(several) == 1 else max(several, key=lambda one: scores[one.name])
            for several in versions
        ]
        best = [replace(one, name=system.name) for system, one in zip(systems, best, strict=True)]
    return best


def versions_of(system: System, key: str, values: Sequence[Any]) -> list[System]:
    """Return a system as it is, and with each other value of a key."""
    others = [value for value in values if key not in system.settings or value != system.settings[key]]
    return [
        system,
        *(
            System(f"{system.name} with {key} {value}", system.title, {**system.settings, key: value})
            for value in others
        ),
    ]


def carried(
    world: World, systems: Sequence[System], training: Sequence[Workload], jobs: int = -1
) -> dict[str, dict[str, Carried]]:
    """Return what every system carries on shorter training workloads, by its name and the workload's."""
    short = [workload.shortened(SHORT) for workload in training]
    asked = [Asked(system, workload, SEED) for system in systems for workload in short]
    found = search(world, asked, jobs, COARSE, STEP)
    return {
        system.name: {workload.name: found[system.name, workload.name, SEED] for workload in short}
        for system in systems
    }


def score(of_workloads: Sequence[Carried]) -> float:
    """Return the mean logarithm of the capacities."""
    return math.fsum(math.log(max(one.met_rps, FLOOR_RPS)) for one in of_workloads) / len(of_workloads)


def told(system: System, before: System) -> str:
    """Return what a system was tuned to that had other values before: `router.slack 16`; nothing if all stayed."""
    return ", ".join(
        f"{key} {value}" for key, value in system.settings.items() if before.settings.get(key, "") != value
    )
