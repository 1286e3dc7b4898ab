"""Capacities of many systems on many workloads, seed by seed."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np
from joblib import Parallel, delayed
from omegaconf import OmegaConf

import simlora
from experiments.cross_table.world import System, Workload, World
from simlora.api.operating_points import filled
from simlora.api.preparing import composed, ready
from simlora.api.progress import bar
from simlora.core.errors import InputError
from simlora.sweeps.outcome import Overrides
from simlora.sweeps.running import run_all
from simlora.sweeps.search import NeverMet
from simlora.sweeps.statistics import interval

PRECISION = 0.03
"""Between the rate that met the SLO and the one that did not."""
LEAST = 1 / 8
"""Of the rate from which it is searched: who carries less is said to carry nothing."""


class Asked(NamedTuple):
    """What one search is about."""

    system: System
    workload: Workload
    seed: int


class Use(NamedTuple):
    """How much of what there is a run used on average, until its last request ended.

    `gpu_share`: of the time in which GPUs computed; `hbm_share`: of their pools; `link_share`: of the time in which the
    links to their hosts copied.
    """

    gpu_share: float = math.nan
    hbm_share: float = math.nan
    link_share: float = math.nan


UNKNOWN = Use()


@dataclass(frozen=True)
class Carried:
    """What was found for one seed: the highest rate that met the SLO, in requests/s, and what it used.

    The rate is 0 if it would be below LEAST of where the search starts, or if simlora refused the system: then
    `refused` says why.
    """

    rate_rps: float
    refused: str = ""
    use: Use = UNKNOWN


class Span(NamedTuple):
    """A mean over seeds, and the ends of its 95 % interval."""

    mean: float
    low: float
    high: float


def search(
    world: World, asked: Sequence[Asked], jobs: int = -1, precision: float = PRECISION
) -> dict[tuple[str, str, int], Carried]:
    """Return the capacity of every system on every workload with every seed, by their names.

    Runs are kept, so that what was searched before takes no time. Searches are independent: what is found does not
    depend on `jobs`, nor on what else is asked.
    """
    unique = {(one.system.name, one.workload.name, one.seed): one for one in asked}
    pairs = {(one.system.name, one.workload.name): one for one in unique.values()}
    pool = Parallel(n_jobs=jobs, return_as="generator")
    ready_to_run = pool(delayed(_settled_or_refused)(world, one) for one in pairs.values())
    overrides = dict(zip(pairs, ready_to_run, strict=True))
    pool = Parallel(n_jobs=jobs, return_as="generator")
    found = pool(
        delayed(_carried)(overrides[name, workload], one, precision)
        for (name, workload, _), one in unique.items()
    )
    result = {}
    with bar(len(unique), "capacities", doing="searching") as tell:
        for key, carried in zip(unique, found, strict=True):
            result[key] = carried
            tell(len(result))
    return result


def _settled_or_refused(world: World, one: Asked) -> Overrides | str:
    """Return the overrides of a system on a workload, or why simlora refuses them."""
    try:
        overrides = settled(world, one.system, one.workload)
        ready(*composed([*overrides, f"{one.workload.key}={one.workload.start}"]))
    except InputError as error:
        return str(error)
    return overrides


def _carried(overrides: Overrides | str, one: Asked, precision: float) -> Carried:
    if isinstance(overrides, str):
        return Carried(0.0, refused=overrides)
    workload, own = one.workload, [*overrides, f"seed={one.seed}"]
    least = LEAST * workload.start
    search_of = {"key": workload.key, "start": workload.start, "least": least, "precision": precision}
    try:
        found = simlora.capacity(own, seeds=1, jobs=1, **search_of)
    except NeverMet:
        return Carried(0.0)
    except InputError as error:  # as of a rate at which simlora refuses the workload
        return Carried(0.0, refused=str(error))
    run = found.question.run(one.seed, found.value)
    outcome = run_all([run], 1, False)[run]  # which was kept
    return Carried(found.value, use=_use(outcome.summary))


def _use(summary: Mapping[str, Any]) -> Use:
    replicas = summary["replicas"]
    gpu, link = (fmean(each[name] for each in replicas) for name in ("busy_share", "link_busy_share"))
    return Use(gpu, summary["kv"]["hbm_share"], link)


def settled(world: World, system: System, workload: Workload) -> Overrides:
    """Return a system's overrides, which say the operating points that its placement would look for.

    They depend on the lengths of requests; a workload that draws others for another rate would have them searched for
    at each. They are those of the placement behind S-LoRA's replicas, as LoRAServe has it, whatever else a system sets.
    """
    overrides = world.overrides(system, workload)
    rate = f"{workload.key}={workload.start}"
    config, _ = composed([*overrides, rate])
    if OmegaConf.select(config, "placement.operating_points", default=0) is not None:
        return overrides
    plain = System("plain", "", {"system": "slora", "placement": "rank_demand", "router": "routing_table"})
    points = filled(*composed([*world.overrides(plain, workload), rate]))[0].placement.operating_points
    told = ",".join(f"{rank}:{tps}" for rank, tps in points.items())
    return (*overrides, f"placement.operating_points={{{told}}}")


def span(rates: Iterable[float]) -> Span:
    """Return the geometric mean over seeds and its interval, NaN of one seed; 0 if one of them is."""
    rates = list(rates)
    if not rates or min(rates) <= 0.0:
        return Span(0.0, math.nan, math.nan)
    logs = np.log(rates)
    low, high = interval(logs)
    return Span(math.exp(logs.mean()), math.exp(low), math.exp(high))


def ratio(own: Mapping[int, float], others: Mapping[int, float]) -> Span:
    """Return how many times as much one carries as the other, seed by seed: most of the luck of a seed cancels."""
    return span(own[seed] / others[seed] if others[seed] > 0.0 else 0.0 for seed in own)
