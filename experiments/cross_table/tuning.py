"""Published systems tuned to this world: what they leave free has the values that carry most on the training workloads.

A composition that is searched for has such values too. Both are scored alike.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence

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
    """Return the systems with the best value of each key that they leave free; of equals the first ones listed."""
    versions = [versions_of(system) for system in systems]
    tried = [one for several in versions if len(several) > 1 for one in several]
    found = carried(world, tried, training, jobs)
    scores = {name: score(list(by_workload.values())) for name, by_workload in found.items()}
    best = [
        several[0] if len(several) == 1 else max(several, key=lambda one: scores[one.name])
        for several in versions
    ]
    return [
        System(system.name, system.title, one.settings) for system, one in zip(systems, best, strict=True)
    ]


def versions_of(system: System) -> list[System]:
    """Return a system with each combination of the values that its keys may have."""
    combinations = itertools.product(*system.free.values())
    settings = [dict(zip(system.free, values, strict=True)) for values in combinations]
    return [
        System(f"{system.name} {own}" if own else system.name, system.title, {**system.settings, **own})
        for own in settings
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


def told(system: System, free: Mapping[str, Sequence[object]]) -> str:
    """Return what a system was tuned to: `router.slack 16`."""
    return ", ".join(f"{key} {system.settings[key]}" for key in free)
