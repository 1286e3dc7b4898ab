"""How near the frontier the systems are: what any composition could add, on one workload alone or in another world.

And what policies of no paper do: with published ones instead, and with a scheduler that is told wrong.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from experiments.composition.search import Search, Tried
from experiments.composition.space import Space
from experiments.cross_table.capacities import Carried, Ratios, Reading, search, span, times
from experiments.cross_table.slots import Exchange, ordinary
from experiments.cross_table.world import System, Workload, World

MISTAKES = {"a tenth too long": 1 / 1.1, "a tenth too short": 1.1}
"""How far a pass may go, by what its scheduler is told of its time: as if the target were another one."""
WRONG = "what a pass takes, told {}"


def as_published(space: Space, system: System) -> list[Exchange]:
    """Return a system once for each of its policies that is of no paper, with the published one instead.

    What is set of the policy stays as far as the other one knows it.
    """
    found = []
    for slot, nearest in space.own.items():
        had = system.settings.get(slot)
        if had in nearest:
            has = nearest[had]
            known = {f"{slot}.{key}" for key in ordinary(slot, has)}
            kept = {
                key: value
                for key, value in system.settings.items()
                if not key.startswith(f"{slot}.") or key in known
            }
            changed = System(f"{system.name} with {has}", system.title, {**kept, slot: has})
            found.append(Exchange(f"{slot}, as published", had, has, changed))
    return found


def told_wrong(world: World, system: System) -> list[Exchange]:
    """Return a system whose scheduler is told that passes take longer than they do, or less, if it asks."""
    if system.settings.get("scheduler") != "chunked_slo":
        return []
    target_s = world.same["slo.tpot_s"]
    return [
        Exchange(
            WRONG.format(mistake),
            "right",
            "wrong",
            System(
                f"{system.name}, told {mistake}",
                system.title,
                {**system.settings, "scheduler.pass_s": float(f"{target_s * factor:.4g}")},
            ),
        )
        for mistake, factor in MISTAKES.items()
    ]


WORLDS: Mapping[str, Mapping[str, Any]] = {
    "every token costs the batch's highest rank, as LoRAServe reads the kernel": {"kernel": "mbgmv_max"},
    "GPUs with 40 GB instead of 80": {"gpu": "a100_40g"},
}
"""What is changed for all systems at once, to see whether what was found depends on it."""
NEARLY = 2 / 3
"""Of the best published system's capacity here: one that carries less of a workload is no rival elsewhere."""
RIVALS = 3
"""Of those that are: the ones that carry most there with the first seed."""
SEEDS = range(3)


@dataclass(frozen=True)
class Alone:
    """Of one training workload, short runs: the most that a published system and that any composition carried."""

    published_rps: float
    most_rps: float
    number: int


def alone(
    tried: Sequence[Tried], published: Sequence[Mapping[str, Carried]], workloads: Sequence[Workload]
) -> dict[str, Alone]:
    """Return, by training workload, how far the best of all compositions for it alone is ahead of those published.

    `published`: what each of these carries on the same short runs, by workload.
    """
    result = {}
    for name in (workload.name for workload in workloads):
        able = [one for one in tried if not one.refused and name in one.carried]
        best = max(able, key=lambda one, name=name: one.carried[name].met_rps)  # type: ignore[misc]
        most_rps = max(carried[name].met_rps for carried in published)
        result[name] = Alone(most_rps, best.carried[name].met_rps, best.number)
    return result


def neighbours(found: Search) -> tuple[int, int, float]:
    """Return how many compositions differ from the best in one slot, how many of them are better, and how much."""
    centre = found.tried[found.centre].score
    able = [one for one in found.neighbours if not one.refused]
    gains = [math.expm1(one.score - centre) for one in able if one.ranks]
    return len(able), sum(gain > 0.0 for gain in gains), max(gains, default=math.nan)


def in_other_worlds(
    world: World,
    workloads: Sequence[Workload],
    system: System,
    published: Sequence[System],
    here: Mapping[tuple[str, str], float],
    jobs: int = -1,
) -> dict[str, Ratios]:
    """Return, for every other world, what a system carries of the capacity of the best of its rivals there.

    `here`: what each carries in this world, in requests/s by its name and the workload's.
    """

    def ahead_in(other: World, workload: Workload) -> dict[int, Reading]:
        name = workload.name
        most = max(here[one.name, name] for one in published)
        able = [one for one in published if here[one.name, name] >= NEARLY * most]
        begun = search(other, product([system, *able], [workload]), SEEDS[:1], jobs, here)
        rivals = sorted(able, key=lambda one: -begun[one.name, name][SEEDS[0]].met_rps)[:RIVALS]
        found = search(other, product([system, *rivals], [workload]), SEEDS, jobs, here)
        best = max(
            (found[one.name, name] for one in rivals),
            key=lambda carried: span(one.rate for one in carried.values()).mean,
        )
        return times(found[system.name, name], best)

    return {
        about: {each.name: ahead_in(world.but(changed), each) for each in workloads}
        for about, changed in WORLDS.items()
    }
