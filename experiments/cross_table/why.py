"""Why the winner wins: its capacity with one slot at a time as S-LoRA has it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from experiments.cross_table.capacities import Asked, Span, search, span, times
from experiments.cross_table.compared import Cell, Row
from experiments.cross_table.slots import Exchange
from experiments.cross_table.world import World


@dataclass(frozen=True)
class Part:
    """What one slot does for a system: `kept` is how many times as much it carries with the slot as another has it.

    NaN where simlora refuses that.
    """

    exchange: Exchange
    kept: Span


def parts(
    world: World, cells: Sequence[tuple[Row, Cell]], swaps: Sequence[Sequence[Exchange]], jobs: int = -1
) -> list[list[Part]]:
    """Return for each system on a workload what each exchange does, the most first; last what cannot be run."""
    asked = [
        Asked(exchange.system, row.workload, seed)
        for (row, cell), own in zip(cells, swaps, strict=True)
        for exchange in own
        if not exchange.refused
        for seed in cell.carried
    ]
    near = {
        (exchange.system.name, row.workload.name): next(iter(cell.carried.values())).met_rps
        for (row, cell), own in zip(cells, swaps, strict=True)
        for exchange in own
    }
    found = search(world, asked, jobs, near)
    result = []
    for (row, cell), own in zip(cells, swaps, strict=True):
        done = []
        for exchange in own:
            kept = Span(math.nan, math.nan, math.nan)
            if not exchange.refused:
                changed = {
                    seed: found[exchange.system.name, row.workload.name, seed] for seed in cell.carried
                }
                kept = span(times(changed, cell.carried).values())
            done.append(Part(exchange, kept))
        result.append(sorted(done, key=lambda part: (bool(part.exchange.refused), part.kept.mean)))
    return result
