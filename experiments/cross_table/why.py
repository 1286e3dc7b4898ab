"""Why the winner wins: its capacity with one slot at a time as S-LoRA has it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from experiments.cross_table.capacities import Asked, Span, ratio, search
from experiments.cross_table.compared import Row
from experiments.cross_table.slots import Exchange, exchanges
from experiments.cross_table.world import System, World


@dataclass(frozen=True)
class Part:
    """What one slot does for a system: `kept` is how many times as much it carries with the slot as another has it."""

    exchange: Exchange
    kept: Span


def parts(
    world: World, cells: Sequence[tuple[Row, System, Mapping[int, float]]], base: System, jobs: int = -1
) -> list[list[Part]]:
    """Return for each system on a workload, with its capacity by seed, what each of its slots does, the most first."""
    swaps = [exchanges(world, system, base, row.workload) for row, system, _ in cells]
    asked = [
        Asked(exchange.system, row.workload, seed)
        for (row, _, rates_rps), own in zip(cells, swaps, strict=True)
        for exchange in own
        if not exchange.refused
        for seed in rates_rps
    ]
    found = search(world, asked, jobs)
    result = []
    for (row, _, rates_rps), own in zip(cells, swaps, strict=True):
        done = []
        for exchange in own:
            if exchange.refused:
                continue
            changed = {
                seed: found[exchange.system.name, row.workload.name, seed].rate_rps for seed in rates_rps
            }
            done.append(Part(exchange, ratio(changed, rates_rps)))
        result.append(sorted(done, key=lambda part: part.kept.mean))
    return result
