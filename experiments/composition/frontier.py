"""How near the frontier the systems are: what any composition could add, on one workload alone or in another world."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from experiments.composition.judging import overall
from experiments.composition.search import Search
from experiments.cross_table.capacities import Asked, Reading, Span, search, span, times
from experiments.cross_table.compared import Row
from experiments.cross_table.world import System, World

WORLDS: Mapping[str, Mapping[str, Any]] = {
    "every token costs the batch's highest rank, as LoRAServe reads the kernel": {"kernel": "mbgmv_max"},
    "GPUs with 40 GB instead of 80": {"gpu": "a100_40g"},
}
"""What is changed for all systems at once, to see whether what was found depends on it."""
RIVALS = 3
"""Of the published systems: those that carry most of a workload are asked in other worlds too."""
SEEDS = range(3)


@dataclass(frozen=True)
class Alone:
    """What the search has seen of one training workload: the most that a published and that any composition carried."""

    published_rps: float
    most_rps: float
    number: int


@dataclass(frozen=True)
class Elsewhere:
    """What a system carries of the best of its rivals' capacity in another world, by workload and seed."""

    about: str
    ratios: Mapping[str, Mapping[int, Reading]]

    @property
    def overall(self) -> Span:
        """Over all workloads."""
        return overall(self.ratios)


def alone(found: Search) -> dict[str, Alone]:
    """Return, by training workload, how far the best of all compositions for it alone is ahead of those published."""
    able = [one for one in found.tried if not one.refused]
    result = {}
    for name in able[0].carried:
        best = max(able, key=lambda one, name=name: one.carried[name].met_rps)  # type: ignore[misc]
        published = max(one.carried[name].met_rps for one in able if one.number < len(found.begun))
        result[name] = Alone(published, best.carried[name].met_rps, best.number)
    return result


def neighbours(found: Search) -> tuple[int, int, float]:
    """Return how many compositions differ from the best in one slot, how many of them are better, and how much."""
    centre = found.tried[found.centre].score
    able = [one for one in found.neighbours if not one.refused]
    gains = [math.expm1(one.score - centre) for one in able]
    return len(able), sum(gain > 0.0 for gain in gains), max(gains, default=math.nan)


def in_other_worlds(
    world: World, rows: Sequence[Row], system: System, published: Sequence[System], jobs: int = -1
) -> list[Elsewhere]:
    """Return, for every other world, how a system stands to the best of those that were nearest to it in this one."""
    names = {one.name for one in published}
    nearest = {
        row.workload.name: [cell.system for cell in row.cells if cell.system.name in names][:RIVALS]
        for row in rows
    }
    result = []
    for about, changed in WORLDS.items():
        other = world.but(changed)
        asked = [
            Asked(one, row.workload, seed)
            for row in rows
            for one in (system, *nearest[row.workload.name])
            for seed in SEEDS
        ]
        found = search(other, asked, jobs)
        ratios = {}
        for row in rows:
            name = row.workload.name
            by_system = {
                one.name: {seed: found[one.name, name, seed] for seed in SEEDS}
                for one in (system, *nearest[name])
            }
            best = max(
                nearest[name],
                key=lambda one: span(carried.rate for carried in by_system[one.name].values()).mean,
            )
            ratios[name] = times(by_system[system.name], by_system[best.name])
        result.append(Elsewhere(about, ratios))
    return result
