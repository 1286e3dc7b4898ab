"""The search: Optuna proposes compositions, their capacities on the training workloads say how good they are."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import optuna

from experiments.composition.space import Composition, Space
from experiments.cross_table.capacities import Asked, Carried, search
from experiments.cross_table.world import System, Workload, World

SEED = 0
"""Of Optuna's sampler and of the workloads that are searched on; finalists get others."""
AT_ONCE = 4
"""Compositions proposed together, whatever the number of cores: so that what is found does not depend on them."""
COARSE = 0.03
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


def explore(
    world: World,
    space: Space,
    workloads: Sequence[Workload],
    trials: int,
    jobs: int = -1,
    tell: Callable[[Sequence[Tried]], None] = lambda tried: None,
) -> list[Tried]:
    """Return all compositions that were tried, in their order.

    First those published; then the best of them with one slot changed at a time, to every other choice; then what
    Optuna's TPE proposes, which begins with what these have shown. The same space, workloads and trials give the same
    answer. Refused compositions are told as failed.
    """
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    sampler = optuna.samplers.TPESampler(seed=SEED, n_startup_trials=len(space.published), constant_liar=True)
    study = optuna.create_study(direction="maximize", sampler=sampler)
    tried: list[Tried] = []

    def go_on(until: int) -> None:
        while len(tried) < min(until, trials):
            asked = [study.ask() for _ in range(min(AT_ONCE, until - len(tried), trials - len(tried)))]
            compositions = [space.suggested(trial) for trial in asked]
            found = evaluated(world, compositions, workloads, jobs, len(tried))
            for trial, one in zip(asked, found, strict=True):
                tried.append(one)
                if one.refused:
                    study.tell(trial, state=optuna.trial.TrialState.FAIL)
                else:
                    study.tell(trial, one.score)
            tell(tried)

    for published in space.published.values():
        study.enqueue_trial(dict(published))
    go_on(len(space.published))
    best = max((one for one in tried if not one.refused), key=lambda one: one.score)
    variations = space.variations(list(space.published.values())[best.number])
    for values in variations:
        study.enqueue_trial(dict(values))
    go_on(len(space.published) + len(variations))
    go_on(trials)
    return tried


def evaluated(
    world: World, compositions: Sequence[Composition], workloads: Sequence[Workload], jobs: int, first: int
) -> list[Tried]:
    """Return what compositions carry, numbered from `first` on; each is refused by one workload or by none."""
    systems = [System(f"trial_{first + i}", "", one.settings) for i, one in enumerate(compositions)]
    asked = [Asked(system, workload, SEED) for system in systems for workload in workloads]
    found = search(world, asked, jobs, COARSE)
    return [
        _tried(
            first + i, one, {workload.name: found[system.name, workload.name, SEED] for workload in workloads}
        )
        for i, (one, system) in enumerate(zip(compositions, systems, strict=True))
    ]


def _tried(number: int, composition: Composition, carried: Mapping[str, Carried]) -> Tried:
    refused = next((one.refused for one in carried.values() if one.refused), "")
    return Tried(number, composition, {name: one.rate_rps for name, one in carried.items()}, refused)
