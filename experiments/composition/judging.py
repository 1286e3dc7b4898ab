"""From many compositions to one: finalists with other seeds, what does not help is left out, and a judgement."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from experiments.composition.search import FLOOR_RPS, SEED, Tried
from experiments.cross_table.capacities import Asked, Span, search, span
from experiments.cross_table.compared import Cell, Row
from experiments.cross_table.slots import Exchange, exchanges
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

    A slot goes back to what `base` has where that costs less than WORTH by itself; all of them together, if that costs
    less than WORTH too.
    """
    finalists = best(tried, FINALISTS)
    systems = {
        one.number: System(f"trial_{one.number}", TITLE, one.composition.settings) for one in finalists
    }
    found = scores(world, list(systems.values()), workloads, jobs)
    ranked = {number: found[system.name] for number, system in systems.items()}
    number = max(ranked, key=lambda one: ranked[one])
    full = systems[number]
    swaps = [one for one in exchanges(world, full, base, workloads[0]) if not one.refused]
    without = scores(world, [one.system for one in swaps], workloads, jobs)
    idle = [one for one in swaps if without[one.system.name] > ranked[number] - WORTH]
    system, score, left_out = full, ranked[number], list[str]()
    if idle:
        plain = _exchanged(world, full, base, idle, workloads[0])
        plain_score = scores(world, [plain], workloads, jobs)[plain.name]
        if plain_score > score - WORTH:
            system, score, left_out = plain, plain_score, [one.slot for one in idle]
    return Found(System(NAME, TITLE, system.settings), score, ranked, number, left_out)


def _exchanged(
    world: World, system: System, base: System, idle: Sequence[Exchange], workload: Workload
) -> System:
    for slot in (one.slot for one in idle):
        again = {one.slot: one for one in exchanges(world, system, base, workload)}
        if slot in again and not again[slot].refused:
            system = again[slot].system
    return system


def best(tried: Sequence[Tried], count: int) -> list[Tried]:
    """Return the best compositions, each once, those tried first before others that are as good."""
    ranked: list[Tried] = []
    for one in sorted((one for one in tried if not one.refused), key=lambda one: (-one.score, one.number)):
        if all(one.composition.settings != other.composition.settings for other in ranked):
            ranked.append(one)
    return ranked[:count]


def ahead(rows: Sequence[Row], published: Sequence[System]) -> dict[str, dict[int, float]]:
    """Return how many times as much the composition carries as the best published system, by workload and seed.

    The best is chosen with the same seeds: that is in its favour.
    """
    found = {}
    for row in rows:
        own = next(cell for cell in row.cells if cell.system.name == NAME)
        rival = rival_of(row, published)
        found[row.workload.name] = {
            seed: own.rates_rps[seed] / max(rival.rates_rps[seed], FLOOR_RPS) for seed in own.rates_rps
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
