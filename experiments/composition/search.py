"""The search: Optuna proposes compositions, their capacities on the training workloads say how good they are."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import optuna

from experiments.composition.space import Composition, Space
from experiments.cross_table.capacities import Carried
from experiments.cross_table.tuning import SEED, carried, score
from experiments.cross_table.world import System, Workload, World

AT_ONCE = 4
"""Compositions proposed together, whatever the number of cores: so that what is found does not depend on them."""
ROUNDS = 5
"""Around the best, at most."""
BETTER = 0.002
"""What a score has to be better by for another round: less is not to be told from what capacities are found to."""


@dataclass(frozen=True)
class Tried:
    """A composition, and what it carries on each training workload."""

    number: int
    composition: Composition
    carried: Mapping[str, Carried]

    @property
    def refused(self) -> str:
        """Why simlora does not run it; nothing if it does."""
        return next((one.refused for one in self.carried.values() if one.refused), "")

    @property
    def score(self) -> float:
        """The mean over workloads of the logarithm of the capacity."""
        return score(list(self.carried.values()))


@dataclass(frozen=True)
class Search:
    """All compositions that were tried, in their order.

    First those published, that have `begun`'s names; TPE's end before `proposed`; `neighbours` are those of the last
    round, which differ from trial `centre` in one slot, or in one value.
    """

    tried: Sequence[Tried]
    begun: Sequence[str]
    proposed: int
    centre: int
    neighbours: Sequence[Tried]


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
    Optuna's TPE proposes, which begins with what these have shown, until there are `trials`. At last the best of all
    with one slot or value changed at a time, then with all of these changes at once that were for the better, and again
    around the best, until none is by BETTER, or ROUNDS times. The same space, workloads and trials give the same
    answer.
    """
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    sampler = optuna.samplers.TPESampler(seed=SEED, n_startup_trials=len(space.published), constant_liar=True)
    study = optuna.create_study(direction="maximize", sampler=sampler)
    tried: list[Tried] = []

    def go_on(until: int) -> None:
        while len(tried) < until:
            asked = [study.ask() for _ in range(min(AT_ONCE, until - len(tried)))]
            compositions = [space.suggested(trial) for trial in asked]
            found = evaluated(world, compositions, workloads, jobs, len(tried))
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

    def best() -> tuple[Tried, dict[str, Any]]:
        found = max((one for one in tried if not one.refused), key=lambda one: one.score)
        return found, {**study.trials[found.number].params, **found.composition.choices}

    go_on(enqueue(list(space.published.values())[:trials]))
    go_on(len(tried) + enqueue(space.variations(best()[1])[: trials - len(tried)]))
    go_on(trials)
    for _ in range(ROUNDS):
        last, (centre, values) = len(tried), best()
        variations = [*space.variations(values), *space.steps(values)]
        go_on(last + enqueue(variations))
        neighbours = tried[last:]
        better = [one for one in neighbours if not one.refused and one.score > centre.score + BETTER]
        if not better:
            break
        better.sort(key=lambda one: one.score)  # the best change of a slot is made last, and stays
        go_on(len(tried) + enqueue([together(values, [variations[one.number - last] for one in better])]))
    return Search(tried, list(space.published), trials, centre.number, neighbours)


def together(values: Mapping[str, Any], changed: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return a composition's values with what each of several others has changed; of one thing the last."""
    result = dict(values)
    for other in changed:
        result |= {key: value for key, value in other.items() if key not in values or values[key] != value}
    return result


def evaluated(
    world: World, compositions: Sequence[Composition], workloads: Sequence[Workload], jobs: int, first: int
) -> list[Tried]:
    """Return what compositions carry, numbered from `first` on."""
    systems = [System(f"trial_{first + i}", "", one.settings) for i, one in enumerate(compositions)]
    found = carried(world, systems, workloads, jobs)
    return [
        Tried(first + i, one, found[system.name])
        for i, (one, system) in enumerate(zip(compositions, systems, strict=True))
    ]
