"""From many compositions to one: finalists with other seeds, what does not help is left out, and a judgement."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import NamedTuple

from experiments.composition.search import Tried
from experiments.cross_table.capacities import Carried, Ratios, Reading, Span, geometric, search, span, times
from experiments.cross_table.compared import Cell, Row
from experiments.cross_table.slots import differing, exchanges, slim
from experiments.cross_table.tuning import SEED, score
from experiments.cross_table.world import System, Workload, World

FINALISTS = 6
SEEDS = range(SEED + 1, SEED + 4)
"""Of finalists, on the whole training workloads: other ones than the search's, whose luck the best of many has had."""
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


class Scored(NamedTuple):
    """A system, and what it carries on the training workloads with every seed."""

    system: System
    carried: Mapping[str, Mapping[int, Carried]]

    @property
    def score(self) -> float:
        """The mean over workloads and seeds of the logarithm of the capacity."""
        return score(one for by_seed in self.carried.values() for one in by_seed.values())

    @property
    def expected(self) -> dict[str, float]:
        """What it carries of each workload with the first seed, in requests/s."""
        return {workload: by_seed[SEEDS[0]].met_rps for workload, by_seed in self.carried.items()}


def scored(
    world: World,
    systems: Sequence[tuple[System, Mapping[str, float]]],
    workloads: Sequence[Workload],
    jobs: int,
) -> list[Scored]:
    """Return what systems carry, each given with what it is expected to by workload, in requests/s."""
    near = {(one.name, workload): rate for one, expected in systems for workload, rate in expected.items()}
    found = search(world, product([one for one, _ in systems], workloads), SEEDS, jobs, near)
    return [
        Scored(one, {workload.name: found[one.name, workload.name] for workload in workloads})
        for one, _ in systems
    ]


def chosen(
    world: World, tried: Sequence[Tried], base: System, workloads: Sequence[Workload], jobs: int = -1
) -> Found:
    """Return the best of the finalists, without what does not help it.

    Its slots that say nothing else than `base` does are not said.
    """
    finalists = best(tried, FINALISTS)
    asked = [
        (
            System(f"trial_{one.number}", TITLE, one.composition.settings),
            {workload: carried.met_rps for workload, carried in one.carried.items()},
        )
        for one in finalists
    ]
    found = scored(world, asked, workloads, jobs)
    one, full = max(zip(finalists, found, strict=True), key=lambda pair: pair[1].score)
    plain = without_idle(world, full, base, workloads, jobs)
    system = slim(world, System(NAME, TITLE, plain.system.settings), base, workloads[0])
    kept = differing(world, system, base, workloads[0])
    left_out = [slot for slot in differing(world, full.system, base, workloads[0]) if slot not in kept]
    ranked = {one.number: each.score for one, each in zip(finalists, found, strict=True)}
    return Found(system, plain.score, ranked, one.number, left_out)


def without_idle(
    world: World, full: Scored, base: System, workloads: Sequence[Workload], jobs: int
) -> Scored:
    """Return a system without the slots that do not help it.

    One slot after the other goes back to what `base` has, the one that costs least first, as long as all of them
    together cost less than WORTH; a slot that costs more by itself is not asked again.
    """
    least, candidates, best = full.score - WORTH, None, full
    while True:
        swaps = [
            one
            for one in exchanges(world, best.system, base, workloads[0])
            if not one.refused and (candidates is None or one.slot in candidates)
        ]
        found = scored(world, [(one.system, best.expected) for one in swaps], workloads, jobs)
        idle = {one.slot: each for one, each in zip(swaps, found, strict=True) if each.score > least}
        if not idle:
            return best
        slot = max(idle, key=lambda one: idle[one].score)
        best, candidates = idle[slot], idle.keys() - {slot}


def best(tried: Sequence[Tried], count: int) -> list[Tried]:
    """Return the best compositions, each once, those tried first before others that are as good."""
    ranked: list[Tried] = []
    for one in sorted((one for one in tried if one.ranks), key=lambda one: (-one.score, one.number)):
        if all(one.composition.settings != other.composition.settings for other in ranked):
            ranked.append(one)
    return ranked[:count]


def ahead(rows: Sequence[Row], published: Sequence[System]) -> Ratios:
    """Return how many times as much the composition carries as the best published system, by workload and seed.

    The best is chosen with the same seeds, which is in the rival's favour.
    """
    return {
        row.workload.name: times(cell_of(row, NAME).carried, rival_of(row, published).carried) for row in rows
    }


def cell_of(row: Row, name: str) -> Cell:
    """Return a system's cell."""
    return next(cell for cell in row.cells if cell.system.name == name)


def rival_of(row: Row, published: Sequence[System]) -> Cell:
    """Return the cell of the published system that carries most on a workload."""
    names = {one.name for one in published}
    return next(cell for cell in row.cells if cell.system.name in names)


def overall(ratios: Ratios) -> Span:
    """Return the geometric mean over workloads, and its interval over seeds: how sure it is of these workloads."""
    seeds = next(iter(ratios.values()))
    return span(
        Reading(*(geometric([by_seed[seed][end] for by_seed in ratios.values()]) for end in range(3)))
        for seed in seeds
    )


def elsewhere(ratios: Ratios) -> Span:
    """Return the geometric mean over workloads, and its interval over workloads: how sure it is of others like them."""
    means = [geometric([one.value for one in by_seed.values()]) for by_seed in ratios.values()]
    return span(Reading(mean, mean, mean) for mean in means)
