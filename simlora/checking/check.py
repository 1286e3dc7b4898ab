"""Checks a policy: in every trial what it answers, that every request ends, and that the same run comes out twice."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

import numpy as np

from simlora.api.own_code import in_a_sentence
from simlora.api.preparing import composed, ready
from simlora.checking.promise import Broken
from simlora.checking.trials import TRIALS
from simlora.checking.watched import (
    WatchedAutoscaler,
    WatchedEviction,
    WatchedKernel,
    WatchedLoader,
    WatchedMigration,
    WatchedPlacement,
    WatchedRouter,
    WatchedScheduler,
    twins,
)
from simlora.config.own_folder import with_folder
from simlora.core.errors import InputError, nearest
from simlora.engine.cluster.simulation import Simulation
from simlora.engine.scenario import Scenario
from simlora.latency.kernels import Kernel
from simlora.metrics.stored import Requests
from simlora.policies.eviction.base import Eviction
from simlora.policies.eviction.swapper import Swapper
from simlora.policies.loading.base import Loader
from simlora.policies.migration.base import Migration
from simlora.policies.placement.base import Placement
from simlora.policies.routing.base import Router
from simlora.policies.scaling.base import Autoscaler
from simlora.policies.scheduling.base import Scheduler

SLOTS = {
    "scheduler": Scheduler,
    "loader": Loader,
    "eviction": Eviction,
    "router": Router,
    "placement": Placement,
    "migration": Migration,
    "autoscaler": Autoscaler,
    "kernel": Kernel,
}
"""The base class of each slot whose policies can be checked."""
STATUS = Literal["kept", "broken", "not tried"]


@dataclass(frozen=True)
class Tried:
    """One trial: what became of it, and a command that runs it."""

    name: str
    status: STATUS
    says: str
    command: str


def slot_of(policy: str, config_dir: str | Path | None = None) -> str:
    """Return the slot that `my_module.MyPolicy` or `slot=choice` fills. Raises InputError if there is none such."""
    slot, is_choice, _ = policy.partition("=")
    if is_choice:
        if slot not in SLOTS:
            raise InputError(f"{policy}: {slot} is no slot; {nearest(slot, list(SLOTS))}")
        composed(with_folder(["gpu=a10g", "model=llama_7b", policy], config_dir))  # is there such a choice?
        return slot
    made = _class(policy)
    for slot, base in SLOTS.items():
        if isinstance(made, type) and issubclass(made, base):
            return slot
    bases = ", ".join(f"{base.__module__}.{base.__name__}" for base in SLOTS.values())
    raise InputError(f"{policy} is no policy, must be a class below one of {bases}")


def _class(target: str) -> Any:
    """Return what a dotted name stands for. Raises InputError if there is nothing of that name."""
    module, _, name = target.rpartition(".")
    if not module:
        raise InputError(f"{target} has no module, must be a name such as my_module.MyPolicy")
    try:
        return getattr(import_module(module), name)
    except ImportError as error:
        raise InputError(f"{target} cannot be imported from this folder: {error}") from None
    except AttributeError:
        raise InputError(f"{module} has no {name}") from None


def check(
    policy: str, arguments: Sequence[str] = (), *, config_dir: str | Path | None = None
) -> Iterator[Tried]:
    """Yield what becomes of a policy, `my_module.MyPolicy` or `slot=choice`, in every trial.

    `arguments` are its keys, `beta=0.5`; `config_dir` is a folder of the user's own configurations. Raises
    InputError if there is no such policy, and if every trial refuses it, with the reason of the first.
    """
    slot = slot_of(policy, config_dir)
    chosen = policy if "=" in policy else f"{slot}._target_={policy}"
    own = [chosen, *(f"++{slot}.{argument}" for argument in arguments)]
    refused = []
    for name, trial in TRIALS.items():
        tried = _tried(slot, name, with_folder([*trial, *own], config_dir))
        refused += [tried] if tried.status == "not tried" else []
        yield tried
    if len(refused) == len(TRIALS):
        raise InputError(f"{policy} could not be tried at all; the first trial: {refused[0].says}")


def _tried(slot: str, name: str, overrides: Sequence[str]) -> Tried:
    command = shlex.join(["simlora", *overrides])
    try:
        scenarios = [
            ready(*composed(overrides)).scenario for _ in range(3)
        ]  # policies keep what they have seen
    except InputError as refusal:
        return Tried(name, "not tried", str(refusal), command)
    scenario, *again = scenarios
    try:
        with twins():
            _served(Simulation(watched(scenario, slot)).run().requests(), scenario)
        _same(*(Simulation(each).run().requests() for each in again))
    except Broken as broken:
        return Tried(name, "broken", str(broken), command)
    except Exception as error:
        return Tried(name, "broken", f"raises an error: {in_a_sentence(error)}", command)
    return Tried(name, "kept", f"{len(scenario.trace):,} requests", command)


def watched(scenario: Scenario, slot: str) -> Scenario:
    """Return a scenario with the policy of a slot under watch."""
    policies = scenario.policies
    if slot == "autoscaler":
        scaling = replace(scenario.scaling, autoscaler=WatchedAutoscaler(scenario.scaling.autoscaler))
        return replace(scenario, scaling=scaling)
    if slot in ("scheduler", "loader", "eviction"):
        if slot == "eviction" and isinstance(policies.eviction(), Swapper):
            return scenario  # asked by worth, of adapters and KV together, and not for victims
        watch = {"scheduler": WatchedScheduler, "loader": WatchedLoader, "eviction": WatchedEviction}[slot]
        made: Callable[[], Any] = getattr(policies, slot)
        chosen: dict[str, Any] = {slot: lambda: watch(made())}
        return replace(scenario, policies=replace(policies, **chosen))
    if slot == "kernel":
        kernel = policies.kernel
        return replace(
            scenario,
            policies=replace(policies, kernel=lambda calibration: WatchedKernel(kernel(calibration))),
        )
    one = {"router": WatchedRouter, "placement": WatchedPlacement, "migration": WatchedMigration}[slot]
    chosen = {slot: one(getattr(policies, slot))}
    return replace(scenario, policies=replace(policies, **chosen))


def _served(requests: Requests, scenario: Scenario) -> None:
    """Check that every request of a run has ended."""
    unfinished = int((requests["status"] == "unfinished").sum()) if len(requests) else 0
    if unfinished or len(requests) != len(scenario.trace):
        left = unfinished or len(scenario.trace) - len(requests)
        raise Broken(f"leaves {left} of {len(scenario.trace)} requests waiting for ever")


def _same(first: Requests, second: Requests) -> None:
    for column in ("replica", "first_token_s", "finish_s"):
        if not np.array_equal(first[column].to_numpy(), second[column].to_numpy(), equal_nan=True):
            raise Broken("does otherwise when the same run is done again")
