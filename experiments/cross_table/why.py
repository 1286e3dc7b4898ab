"""Why the winner wins: its capacity with one slot at a time as S-LoRA has it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from experiments.cross_table.capacities import Span, carried_by_seed, span, times
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
    return [
        sorted(
            _parts(world, row, cell, own, jobs),
            key=lambda part: (bool(part.exchange.refused), part.kept.mean),
        )
        for (row, cell), own in zip(cells, swaps, strict=True)
    ]


def _parts(world: World, row: Row, cell: Cell, swaps: Sequence[Exchange], jobs: int) -> Iterator[Part]:
    name, (first, *_) = row.workload.name, cell.carried.values()
    systems = [exchange.system for exchange in swaps if not exchange.refused]
    near = {(system.name, name): first.met_rps for system in systems}
    found = carried_by_seed(world, systems, [row.workload], cell.carried, jobs, near)
    for exchange in swaps:
        kept = Span(math.nan, math.nan, math.nan)
        if not exchange.refused:
            kept = span(times(found[exchange.system.name, name], cell.carried).values())
        yield Part(exchange, kept)
