"""What systems carry and what they do at one and the same rate, with intervals over seeds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from statistics import fmean

from experiments.cross_table.bound import Bound, bound
from experiments.cross_table.capacities import Carried, Span, Use, search, settled, span, times
from experiments.cross_table.world import System, Workload, World
from simlora.core.errors import InputError
from simlora.sweeps.outcome import Outcome, Overrides
from simlora.sweeps.running import run_all
from simlora.sweeps.statistics import interval

SHARE = 0.8
"""Of the best capacity: the rate at which all systems are compared."""
FIGURES = ("slo.attainment", "ttft_s.mean", "ttft_s.p95", "tpot_s.mean", "kv.hit_rate")
PLAIN = System("plain", "", {"system": "slora"})
SHARES = ("slo.attainment", "kv.hit_rate")


@dataclass(frozen=True)
class Cell:
    """One system on one workload. `carried`: its capacity by seed. `use`: at its capacity.

    `figures`: at the common rate, by metric; of a system that is refused or carries less there are none.
    """

    system: System
    workload: Workload
    carried: Mapping[int, Carried]
    use: Use
    figures: Mapping[str, Span] = field(default_factory=dict)
    refused: str = ""

    @property
    def capacity(self) -> Span:
        """The highest rate within the SLO, in requests/s."""
        return span(one.rate for one in self.carried.values())


@dataclass(frozen=True)
class Row:
    """All systems on one workload, those that carry most first, and the rate at which they are compared.

    `bound` is what none of them can exceed.
    """

    workload: Workload
    cells: Sequence[Cell]
    rate_rps: float
    bound: Bound

    @property
    def best(self) -> Cell:
        """The system that carries most on average; of equals the first in the world's order."""
        return self.cells[0]

    def against_best(self, cell: Cell) -> Span:
        """Return how many times the best's capacity a system carries, seed by seed."""
        return span(times(cell.carried, self.best.carried).values())

    @property
    def level(self) -> list[Cell]:
        """The systems that cannot be told from the best: the interval of what they carry of its capacity includes 1."""
        return [cell for cell in self.cells if not (cell.refused or self._behind(cell))]

    def _behind(self, cell: Cell) -> bool:
        """Whether a system carries less beyond doubt; of one seed nothing is."""
        found = self.against_best(cell)
        return found.mean == 0.0 or found.high < 1.0


def compare(
    world: World,
    systems: Sequence[System],
    workloads: Sequence[Workload],
    seeds: Sequence[int],
    jobs: int = -1,
) -> list[Row]:
    """Return a row a workload, without figures. Raises InputError if no system keeps the SLO on it."""
    carried = search(world, product(systems, workloads), seeds, jobs)
    rows = []
    for workload in workloads:
        cells = [_cell(system, workload, carried[system.name, workload.name]) for system in systems]
        cells.sort(key=lambda cell: -cell.capacity.mean)
        most = cells[0].capacity.mean
        if most <= 0.0:
            raise InputError(f"no system keeps the SLO on {workload.name} at any rate")
        rows.append(Row(workload, cells, float(f"{SHARE * most:.3g}"), bound(world, PLAIN, workload, seeds)))
    return rows


def with_figures(world: World, rows: Sequence[Row], seeds: Sequence[int], jobs: int = -1) -> list[Row]:
    """Return rows with what the systems that carry the common rate do at it.

    Past a system's capacity its queue grows for as long as the run lasts, and its mean and P95 tell how long that was.
    """
    runs = [[_at(world, row, cell, seeds) for cell in row.cells] for row in rows]
    outcomes = run_all([run for of_row in runs for own in of_row for run in own], jobs)
    return [
        replace(
            row,
            cells=[
                replace(cell, figures=_figures([outcomes[run] for run in own]))
                for cell, own in zip(row.cells, of_row, strict=True)
            ],
        )
        for row, of_row in zip(rows, runs, strict=True)
    ]


def _at(world: World, row: Row, cell: Cell, seeds: Sequence[int]) -> list[Overrides]:
    """Return the runs of a system at the common rate."""
    if cell.refused or cell.capacity.mean < row.rate_rps:
        return []
    overrides = (*settled(world, cell.system, row.workload), f"{row.workload.key}={row.rate_rps}")
    return [(*overrides, f"seed={seed}") for seed in seeds]


def _figures(outcomes: Sequence[Outcome]) -> dict[str, Span]:
    found = {}
    for metric in FIGURES:
        values = [value for outcome in outcomes if (value := outcome.figure(metric)) is not None]
        if values:
            low, high = interval(values)
            most = min(high, 1.0) if metric in SHARES else high
            found[metric] = Span(fmean(values), max(low, 0.0), most)
    return found


def _cell(system: System, workload: Workload, carried: Mapping[int, Carried]) -> Cell:
    refused = next((one.refused for one in carried.values() if one.refused), "")
    use = Use(*map(fmean, zip(*(one.use for one in carried.values()), strict=True)))
    return Cell(system, workload, carried, use, refused=refused)
