"""From many compositions to one: finalists with other seeds, what does not help is left out, and a judgement."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from experiments.composition.search import FLOOR_RPS, SEED, Tried
from experiments.cross_table.capacities import Asked, Span, search, span
from experiments.cross_table.compared import Cell, Row
from experiments.cross_table.slots import differing, exchanges, slim
from experiments.cross_table.world import System, Workload, World

FINALISTS = 6
SEEDS = range(SEED + 1, SEED + 4)
"""Of finalists, on the training workloads: other ones than the search's, whose luck the best of many has had."""
WORTH = 0.005
"""What a slot has to add to the mean logarithm of the capacity to be other than S-LoRA's."""
NAME, TITLE = "simlora", "the composition"


@dataclass(frozen=True)
class Found:
    """The composition that is published, its score on the training workloads, and what was left out on the way."""

    system: System
    score: float
    finalists: Mapping[int, float]
    number: int
    left_out: Sequence[str]


def scores(
    world: World, systems: Sequence[System], workloads: Sequence[Workload], jobs: int
) -> dict[str, float]:
    """Return the mean logarithm of each system's capacity over workloads and seeds, by its name."""
    found = search(
        world,
        [Asked(one, workload, seed) for one in systems for workload in workloads for seed in SEEDS],
        jobs,
    )
    cells = [(workload.name, seed) for workload in workloads for seed in SEEDS]
    return {
        one.name: math.fsum(math.log(max(found[one.name, *cell].rate_rps, FLOOR_RPS)) for cell in cells)
        / len(cells)
        for one in systems
    }


def chosen(
    world: World, tried: Sequence[Tried], base: System, workloads: Sequence[Workload], jobs: int = -1
) -> Found:
    """Return the best of the finalists, without what does not help it.

    Its slots that say nothing else than `base` does are not said.
    """
    finalists = best(tried, FINALISTS)
    systems = {
        one.number: System(f"trial_{one.number}", TITLE, one.composition.settings) for one in finalists
    }
    found = scores(world, list(systems.values()), workloads, jobs)
    ranked = {number: found[system.name] for number, system in systems.items()}
    number = max(ranked, key=lambda one: ranked[one])
    full = systems[number]
    plain, score = without_idle(world, full, ranked[number], base, workloads, jobs)
    system = slim(world, System(NAME, TITLE, plain.settings), base, workloads[0])
    kept = differing(world, system, base, workloads[0])
    left_out = [slot for slot in differing(world, full, base, workloads[0]) if slot not in kept]
    return Found(system, score, ranked, number, left_out)


def without_idle(
    world: World, system: System, score: float, base: System, workloads: Sequence[Workload], jobs: int
) -> tuple[System, float]:
    """Return a system without the slots that do not help it, and its score.

    One slot after the other goes back to what `base` has, the one that costs least first, as long as all of them
    together cost less than WORTH; a slot that costs more by itself is not asked again.
    """
    least, candidates = score - WORTH, None
    while True:
        swaps = [
            one
            for one in exchanges(world, system, base, workloads[0])
            if not one.refused and (candidates is None or one.slot in candidates)
        ]
        found = scores(world, [one.system for one in swaps], workloads, jobs)
        idle = [one for one in swaps if found[one.system.name] > least]
        if not idle:
            return system, score
        first = max(idle, key=lambda one: found[one.system.name])
        system, score = first.system, found[first.system.name]
        candidates = {one.slot for one in idle if one is not first}


def best(tried: Sequence[Tried], count: int) -> list[Tried]:
    """Return the best compositions, each once, those tried first before others that are as good."""
    ranked: list[Tried] = []
    for one in sorted((one for one in tried if not one.refused), key=lambda one: (-one.score, one.number)):
        if all(one.composition.settings != other.composition.settings for other in ranked):
            ranked.append(one)
    return ranked[:count]


def ahead(rows: Sequence[Row], published: Sequence[System]) -> dict[str, dict[int, float]]:
    """Return how many times as much the composition carries as the best published system, by workload and seed.

    The best is chosen with the same seeds, which is in the rival's favour.
    """
    found = {}
    for row in rows:
        own = next(cell for cell in row.cells if cell.system.name == NAME)
        rival = rival_of(row, published)
        found[row.workload.name] = {
            seed: max(rate, FLOOR_RPS) / max(rival.rates_rps[seed], FLOOR_RPS)
            for seed, rate in own.rates_rps.items()
        }
    return found


def rival_of(row: Row, published: Sequence[System]) -> Cell:
    """Return the cell of the published system that carries most on a workload."""
    names = {one.name for one in published}
    return next(cell for cell in row.cells if cell.system.name in names)


def overall(ratios: Mapping[str, Mapping[int, float]]) -> Span:
    """Return the geometric mean over workloads, and its interval over seeds."""
    seeds = next(iter(ratios.values()))
    return span(
        math.exp(math.fsum(math.log(by_seed[seed]) for by_seed in ratios.values()) / len(ratios))
        for seed in seeds
    )
