"""The search: Optuna proposes compositions, their capacities on the training workloads say how good they are."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import optuna
from optuna.trial import TrialState

from experiments.composition.space import Composition, Space
from experiments.cross_table.capacities import Carried
from experiments.cross_table.tuning import SEED, carried, score
from experiments.cross_table.world import System, Workload, World

AT_ONCE = 8
"""Compositions that TPE proposes together, whatever the number of cores: so that what is found does not depend on them.
"""
BEHIND = 0.04
"""How far behind the best so far, in score, the workloads tried may leave a composition before it is left off."""
ROUNDS = 5
"""Around the best, at most."""
BETTER = 0.002
"""What a score has to be better by for another round: less is not to be told from what capacities are found to."""


@dataclass(frozen=True)
class Tried:
    """A composition, and what it carries on each training workload; if it is `left_off`, on those tried until then."""

    number: int
    composition: Composition
    carried: Mapping[str, Carried]
    left_off: bool = False

    @property
    def refused(self) -> str:
        """Why simlora does not run it; nothing if it does."""
        return next((one.refused for one in self.carried.values() if one.refused), "")

    @property
    def ranks(self) -> bool:
        """Whether it was tried on all workloads, so that its score can be held against others'."""
        return not (self.refused or self.left_off)

    @property
    def score(self) -> float:
        """The mean over workloads of the logarithm of the capacity."""
        return score(self.carried.values())


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

    They are tried in the order that page.md describes, until there are `trials`, and then around the best. The same
    space, workloads and trials give the same answer. Workloads on which those published differ most are tried first.
    TPE is told, too, which compositions are left off.
    """
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    sampler = optuna.samplers.TPESampler(seed=SEED, n_startup_trials=len(space.published), constant_liar=True)
    study = optuna.create_study(direction="maximize", sampler=sampler)
    tried: list[Tried] = []

    def go_on(until: int, at_once: int = AT_ONCE, near: bool = False) -> None:
        while len(tried) < until:
            asked = [study.ask() for _ in range(min(at_once, until - len(tried)))]
            compositions = [space.suggested(trial) for trial in asked]
            leader = best()[0] if tried else None
            found = evaluated(world, compositions, workloads, jobs, len(tried), leader, near)
            for trial, one in zip(asked, found, strict=True):
                tried.append(one)
                _hear(study, trial, one)
            tell(tried)

    def try_all(several: Sequence[Mapping[str, Any]], near: bool = True) -> None:
        for values in several:
            study.enqueue_trial(dict(values))
        go_on(len(tried) + len(several), len(several), near)

    def best() -> tuple[Tried, dict[str, Any]]:
        found = max((one for one in tried if one.ranks), key=lambda one: one.score)
        return found, {**study.trials[found.number].params, **found.composition.choices}

    try_all(list(space.published.values())[:trials], near=False)
    workloads = by_spread(tried, workloads)
    centre, values = best()
    try_all(space.variations(values)[: trials - len(tried)])
    go_on(trials)
    for _ in range(ROUNDS):
        last, (centre, values) = len(tried), best()
        variations = [*space.variations(values), *space.steps(values)]
        try_all(variations)
        neighbours = tried[last:]
        better = [one for one in neighbours if one.ranks and one.score > centre.score + BETTER]
        if not better:
            break
        better.sort(key=lambda one: one.score)  # the best change of a slot is made last, and stays
        try_all([together(values, [variations[one.number - last] for one in better])])
    return Search(tried, list(space.published), trials, centre.number, neighbours)


def _hear(study: optuna.Study, trial: optuna.Trial, one: Tried) -> None:
    """Let Optuna know what became of a trial."""
    if one.refused:
        study.tell(trial, state=TrialState.FAIL)
    elif one.left_off:
        trial.report(one.score, step=len(one.carried))
        study.tell(trial, state=TrialState.PRUNED)
    else:
        study.tell(trial, one.score)


def together(values: Mapping[str, Any], changed: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return a composition's values with what each of several others has changed; of one thing the last."""
    result = dict(values)
    for other in changed:
        result |= {key: value for key, value in other.items() if key not in values or values[key] != value}
    return result


def by_spread(tried: Sequence[Tried], workloads: Sequence[Workload]) -> list[Workload]:
    """Return the workloads, those first on which compositions differ most."""

    def spread(workload: Workload) -> float:
        scores = [score([one.carried[workload.name]]) for one in tried if one.ranks]
        return max(scores) - min(scores)

    return sorted(workloads, key=lambda one: -spread(one))


def evaluated(
    world: World,
    compositions: Sequence[Composition],
    workloads: Sequence[Workload],
    jobs: int,
    first: int,
    leader: Tried | None = None,
    near: bool = False,
) -> list[Tried]:
    """Return what compositions carry, numbered from `first` on, workload by workload.

    Those that fall BEHIND the `leader` are left off. `near`: they are expected to carry about as much as that does.
    """
    systems = [System(f"trial_{first + i}", "", one.settings) for i, one in enumerate(compositions)]
    found: dict[str, dict[str, Carried]] = {system.name: {} for system in systems}
    left, together = systems, [[workload] for workload in workloads] if leader else [workloads]
    for some in together:
        expected = leader.carried if leader and near else {}
        rates = {(each.name, name): one.met_rps for each in left for name, one in expected.items()}
        for name, by_workload in carried(world, left, some, jobs, rates).items():
            found[name] |= by_workload
        if leader:
            left = [system for system in left if not hopeless(found[system.name], leader)]
    return [
        Tried(first + i, one, found[system.name], left_off=len(found[system.name]) < len(workloads))
        for i, (one, system) in enumerate(zip(compositions, systems, strict=True))
    ]


def hopeless(so_far: Mapping[str, Carried], leader: Tried) -> bool:
    """Whether a composition is BEHIND the leader, if it carried as much as that on all workloads that are left."""
    return score({**leader.carried, **so_far}.values()) < leader.score - BEHIND
