"""Checks a policy: in every trial what it answers, that every request ends, and that the same run comes out twice."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
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
from simlora.core.errors import InputError
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


def slot_of(target: str) -> str:
    """Return the slot that a class fills, from `my_module.MyPolicy`. Raises InputError if it fills none."""
    made = _class(target)
    for slot, base in SLOTS.items():
        if isinstance(made, type) and issubclass(made, base):
            return slot
    bases = ", ".join(f"{base.__module__}.{base.__name__}" for base in SLOTS.values())
    raise InputError(f"{target} is no policy, must be a class below one of {bases}")


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


def check(target: str, arguments: Sequence[str] = ()) -> Iterator[Tried]:
    """Yield what becomes of a policy in every trial; `arguments` are its keys, `beta=0.5`.

    Raises InputError if there is no such policy, and if every trial refuses it, with the reason of the first.
    """
    slot = slot_of(target)
    refused = []
    for name, trial in TRIALS.items():
        own = [f"+{slot}.{argument}" for argument in arguments]
        overrides = [*trial, f"{slot}._target_={target}", *own]
        tried = _tried(slot, name, overrides)
        refused += [tried] if tried.status == "not tried" else []
        yield tried
    if len(refused) == len(TRIALS):
        raise InputError(f"{target} could not be tried at all; the first trial: {refused[0].says}")


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
