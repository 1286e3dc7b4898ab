"""What systems carry and what they do at one and the same rate, with intervals over seeds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from experiments.cross_table.bound import Bound, bound
from experiments.cross_table.capacities import Asked, Carried, Span, Use, search, settled, span, times
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
    """One system on one workload. `carried`: its capacity by seed. `figures`: at the common rate, by metric.

    `use`: at its capacity.
    """

    system: System
    workload: Workload
    carried: Mapping[int, Carried]
    figures: Mapping[str, Span]
    use: Use
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
    """Return a row a workload. Raises InputError if no system keeps the SLO on it."""
    asked = [Asked(system, workload, seed) for workload in workloads for system in systems for seed in seeds]
    carried = search(world, asked, jobs)
    ranked = {}
    for workload in workloads:
        means = {one.name: _mean(carried, one, workload, seeds) for one in systems}
        order = sorted(systems, key=lambda one, means=means: -means[one.name])  # type: ignore[misc]
        if means[order[0].name] <= 0.0:
            raise InputError(f"no system keeps the SLO on {workload.name} at any rate")
        ranked[workload.name] = (order, float(f"{SHARE * means[order[0].name]:.3g}"))
    runs = {
        (system.name, workload.name, seed): (
            *overrides,
            f"{workload.key}={ranked[workload.name][1]}",
            f"seed={seed}",
        )
        for workload in workloads
        for system in systems
        if not carried[system.name, workload.name, seeds[0]].refused
        for overrides in (settled(world, system, workload),)
        for seed in seeds
    }
    outcomes = run_all(runs.values(), jobs)
    return [
        Row(
            workload,
            [_cell(system, workload, seeds, carried, runs, outcomes) for system in ranked[workload.name][0]],
            ranked[workload.name][1],
            bound(world, PLAIN, workload, seeds),
        )
        for workload in workloads
    ]


def _mean(
    carried: Mapping[tuple[str, str, int], Carried], system: System, workload: Workload, seeds: Sequence[int]
) -> float:
    return span(carried[system.name, workload.name, seed].rate for seed in seeds).mean


def _cell(
    system: System,
    workload: Workload,
    seeds: Sequence[int],
    carried: Mapping[tuple[str, str, int], Carried],
    runs: Mapping[tuple[str, str, int], Overrides],
    outcomes: Mapping[Overrides, Outcome],
) -> Cell:
    keys = [(system.name, workload.name, seed) for seed in seeds]
    by_seed = {seed: carried[key] for seed, key in zip(seeds, keys, strict=True)}
    own = [outcomes[runs[key]] for key in keys if key in runs]
    figures = {}
    for metric in FIGURES:
        values = [value for outcome in own if (value := outcome.figure(metric)) is not None]
        if values:
            low, high = interval(values)
            figures[metric] = Span(fmean(values), max(low, 0.0), min(high, 1.0) if metric in SHARES else high)
    refused = next((carried[key].refused for key in keys if carried[key].refused), "")
    use = Use(*(fmean(parts) for parts in zip(*(carried[key].use for key in keys), strict=True)))
    return Cell(system, workload, by_seed, figures, use, refused)
