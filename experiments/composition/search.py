"""The search: Optuna proposes compositions, their capacities on the training workloads say how good they are."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import optuna

from experiments.composition.space import Composition, Space
from experiments.cross_table.capacities import Asked, Carried, search
from experiments.cross_table.world import System, Workload, World

SEED = 100
"""Of Optuna's sampler and of the workloads that are searched on; finalists and the judgement have others."""
SHORT = 1 / 3
"""Of a workload's length, while the search explores: finalists run all of it."""
AT_ONCE = 4
"""Compositions proposed together, whatever the number of cores: so that what is found does not depend on them."""
COARSE = 0.03
"""What a capacity is found to while the search explores."""
STEP = 1.25
"""The first step of a search: most compositions carry about as much as where the workload's search starts."""
FLOOR_RPS = 0.1
"""What counts for a system that cannot keep the SLO at any rate: the logarithm of 0 cannot be averaged."""


@dataclass(frozen=True)
class Tried:
    """A composition and its capacity on each training workload, in requests/s; or why simlora refuses it."""

    number: int
    composition: Composition
    rates_rps: Mapping[str, float]
    refused: str = ""

    @property
    def score(self) -> float:
        """The mean over workloads of the logarithm of the capacity."""
        return math.fsum(math.log(max(rate, FLOOR_RPS)) for rate in self.rates_rps.values()) / len(
            self.rates_rps
        )


@dataclass(frozen=True)
class Search:
    """All compositions that were tried, in their order: from `last` on those that differ from `centre` in one slot."""

    tried: Sequence[Tried]
    begun: Sequence[str]
    centre: int
    last: int

    @property
    def neighbours(self) -> Sequence[Tried]:
        """What differs from the best of all others in one slot."""
        return self.tried[self.last :]


def explore(
    world: World,
    space: Space,
    workloads: Sequence[Workload],
    trials: int,
    jobs: int = -1,
    tell: Callable[[Sequence[Tried]], None] = lambda tried: None,
) -> Search:
    """Return all compositions that were tried.

    First those published; then the best of them with one slot changed at a time, to every other choice; then what
    Optuna's TPE proposes, which begins with what these have shown, until there are `trials`; at last the best of all
    with one slot changed at a time. The same space, workloads and trials give the same answer.
    """
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    sampler = optuna.samplers.TPESampler(seed=SEED, n_startup_trials=len(space.published), constant_liar=True)
    study = optuna.create_study(direction="maximize", sampler=sampler)
    short = [workload.shortened(SHORT) for workload in workloads]
    tried: list[Tried] = []

    def go_on(until: int) -> None:
        while len(tried) < until:
            asked = [study.ask() for _ in range(min(AT_ONCE, until - len(tried)))]
            compositions = [space.suggested(trial) for trial in asked]
            found = evaluated(world, compositions, short, jobs, len(tried))
            for trial, one in zip(asked, found, strict=True):
                tried.append(one)
                if one.refused:
                    study.tell(trial, state=optuna.trial.TrialState.FAIL)
                else:
                    study.tell(trial, one.score)
            tell(tried)

    def enqueue(several: Sequence[Mapping[str, Any]]) -> int:
        for values in several:
            study.enqueue_trial(dict(values))
        return len(several)

    def around() -> tuple[int, list[dict[str, Any]]]:
        best = max((one for one in tried if not one.refused), key=lambda one: one.score)
        return best.number, space.variations({**study.trials[best.number].params, **best.composition.choices})

    go_on(enqueue(list(space.published.values())[:trials]))
    go_on(len(tried) + enqueue(around()[1][: trials - len(tried)]))
    go_on(trials)
    centre, variations = around()
    go_on(trials + enqueue(variations))
    return Search(tried, list(space.published), centre, trials)


def evaluated(
    world: World, compositions: Sequence[Composition], workloads: Sequence[Workload], jobs: int, first: int
) -> list[Tried]:
    """Return what compositions carry, numbered from `first` on; each is refused by one workload or by none."""
    systems = [System(f"trial_{first + i}", "", one.settings) for i, one in enumerate(compositions)]
    asked = [Asked(system, workload, SEED) for system in systems for workload in workloads]
    found = search(world, asked, jobs, COARSE, STEP)
    return [
        _tried(
            first + i, one, {workload.name: found[system.name, workload.name, SEED] for workload in workloads}
        )
        for i, (one, system) in enumerate(zip(compositions, systems, strict=True))
    ]


def _tried(number: int, composition: Composition, carried: Mapping[str, Carried]) -> Tried:
    refused = next((one.refused for one in carried.values() if one.refused), "")
    return Tried(number, composition, {name: one.met_rps for name, one in carried.items()}, refused)
