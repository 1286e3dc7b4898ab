"""Capacities of many systems on many workloads, seed by seed."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any, NamedTuple

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

PRECISION = 0.015
"""Between the rate that met the SLO and the one that did not: finer than what systems differ by."""
STEP, NEAR = 1.25, 1.03
"""The first step of a search from where a workload says, and from what was found for something that is nearly this."""
LEAST = 1 / 8
"""Of the rate from which it is searched: a system that carries less is said to carry nothing."""


class Use(NamedTuple):
    """What a run at the capacity used, on average until its last request ended, and what that costs.

    `gpu_share`: of the time in which GPUs computed, or waited for weights; `hbm_share`: of their pools; `link_share`:
    of the time in which the links to their hosts copied. `given_up_share`: of the requests, those never served.
    `usd_per_million`: the rent of all GPUs over a million of the output tokens that they make.
    """

    gpu_share: float = math.nan
    hbm_share: float = math.nan
    link_share: float = math.nan
    given_up_share: float = math.nan
    usd_per_million: float = math.nan


UNKNOWN = Use()


class Reading(NamedTuple):
    """A number, and the ends between which it is known to lie."""

    value: float
    least: float
    most: float

    def over(self, other: Reading) -> Reading:
        """Return how many times as much this is; infinity if only the other is 0, and 0 if this is."""
        if self.value <= 0.0:
            return Reading(0.0, 0.0, 0.0)
        if other.value <= 0.0:
            return Reading(math.inf, math.inf, math.inf)
        return Reading(self.value / other.value, self.least / other.most, self.most / other.least)


Ratios = Mapping[str, Mapping[int, Reading]]
"""How many times as much one system carries as another, by workload and seed."""


@dataclass(frozen=True)
class Carried:
    """What was found for one seed: the highest rate that met the SLO and the lowest that did not, in requests/s.

    `met_rps` is 0 if it would be below LEAST of where the search starts, or if simlora refused the system: then
    `refused` says why. `use` is what the run at `met_rps` used.
    """

    met_rps: float
    missed_rps: float
    refused: str = ""
    use: Use = UNKNOWN

    @property
    def rate(self) -> Reading:
        """The capacity, which lies between the two."""
        return Reading(self.met_rps, self.met_rps, self.missed_rps)


class Span(NamedTuple):
    """A mean over seeds or workloads, and the ends of its 95 % interval."""

    mean: float
    low: float
    high: float


def search(
    world: World,
    pairs: Iterable[tuple[System, Workload]],
    seeds: Sequence[int],
    jobs: int = -1,
    near: Mapping[tuple[str, str], float] | None = None,
) -> dict[tuple[str, str], dict[int, Carried]]:
    """Return the capacity of each system on its workload, by their names, with every seed.

    The first seed is searched from where the workload says, or from what a system is expected to carry of it, if that
    is told in `near`, in requests/s by their names; the others from what the first one found. From near by it takes
    half as many runs. Runs are kept, so that what was searched before takes no time. What is found does not depend on
    `jobs`, nor on which other systems and workloads are asked.
    """
    asked = {(system.name, workload.name): (system, workload) for system, workload in pairs}
    found: dict[tuple[str, str], dict[int, Carried]] = {}
    with bar(len(asked), "systems on workloads", doing="searching") as tell:
        tasks = (
            delayed(_searched)(world, *asked[pair], seeds, (near or {}).get(pair, 0.0)) for pair in asked
        )
        pool = Parallel(n_jobs=jobs, return_as="generator")
        for pair, carried in zip(asked, pool(tasks), strict=True):
            found[pair] = carried
            tell(len(found))
    return found


def _searched(
    world: World, system: System, workload: Workload, seeds: Sequence[int], near_rps: float
) -> dict[int, Carried]:
    """Return what one system carries on one workload, a seed after the other."""
    try:
        overrides = settled(world, system, workload)
        ready(*composed([*overrides, workload.at_start]))
    except InputError as error:
        return dict.fromkeys(seeds, Carried(0.0, 0.0, refused=str(error)))
    found: dict[int, Carried] = {}
    for seed in seeds:
        before_rps = found[seeds[0]].met_rps if found else near_rps
        start, step = (before_rps, NEAR) if before_rps else (workload.start, STEP)
        found[seed] = _carried(overrides, workload, seed, start, step)
    return found


def _carried(overrides: Overrides, workload: Workload, seed: int, start: float, step: float) -> Carried:
    least = LEAST * workload.start
    try:
        found = simlora.capacity(
            [*overrides, f"seed={seed}"],
            seeds=1,
            key=workload.key,
            start=start,
            step=step,
            least=least,
            precision=PRECISION,
            longest=1,
            jobs=1,
        )
    except NeverMet:
        return Carried(0.0, least)
    except InputError as error:  # as of a rate at which simlora refuses the workload
        return Carried(0.0, 0.0, refused=str(error))
    met_rps, missed_rps = found.seeds[["value", "beyond"]].iloc[0].tolist()
    run = found.question.overrides_for(seed, met_rps)
    outcome = run_all([run], 1, False)[run]  # which was kept
    return Carried(met_rps, missed_rps, use=_use(outcome.summary, met_rps))


def _use(summary: Mapping[str, Any], rate_rps: float) -> Use:
    """Return what a run used. A run lasts beyond its last arrival, and its own cost counts that; a server does not."""
    replicas, cost = summary["replicas"], summary["cost"]
    gpu, link = (fmean(each[name] for each in replicas) for name in ("busy_share", "link_busy_share"))
    tokens_per_request = summary["throughput_tps"] / summary["throughput_rps"]
    given_up = summary["load"]["given_up_share"]
    usd_per_s = cost["usd"] / summary["makespan_s"]
    usd = usd_per_s / (rate_rps * (1.0 - given_up) * tokens_per_request) * 1e6
    return Use(gpu, summary["kv"]["hbm_share"], link, given_up, usd)


def settled(world: World, system: System, workload: Workload) -> Overrides:
    """Return a system's overrides, which say the operating points that its placement would look for.

    They depend on the lengths of requests; a workload that draws others for another rate would have them searched for
    at each. They are those of the placement behind S-LoRA's replicas, as LoRAServe has it, whatever else a system sets.
    """
    overrides = world.overrides(system, workload)
    config, _ = composed([*overrides, workload.at_start])
    if OmegaConf.select(config, "placement.operating_points", default=0) is not None:
        return overrides
    plain = System("plain", "", {"system": "slora", "placement": "rank_demand", "router": "routing_table"})
    points = filled(*composed([*world.overrides(plain, workload), workload.at_start]))[
        0
    ].placement.operating_points
    told = ",".join(f"{rank}:{tps}" for rank, tps in points.items())
    return (*overrides, f"placement.operating_points={{{told}}}")


def span(readings: Iterable[Reading]) -> Span:
    """Return the geometric mean and its 95 % interval, which takes in what lies between the ends.

    NaN are the ends of a single reading; 0 is the mean if one of them is, and else infinity if one of them is.
    """
    readings = list(readings)
    if not readings or min(one.value for one in readings) <= 0.0:
        return Span(0.0, math.nan, math.nan)
    if math.isinf(max(one.value for one in readings)):
        return Span(math.inf, math.nan, math.nan)
    low = interval([math.log(one.least) for one in readings])[0]
    high = interval([math.log(one.most) for one in readings])[1]
    return Span(geometric([one.value for one in readings]), math.exp(low), math.exp(high))


def geometric(values: Sequence[float]) -> float:
    """Return the geometric mean; 0 if one of them is."""
    return math.exp(fmean(map(math.log, values))) if min(values) > 0.0 else 0.0


def times(own: Mapping[int, Carried], others: Mapping[int, Carried]) -> dict[int, Reading]:
    """Return how many times as much one carries as the other, seed by seed: most of the luck of a seed cancels."""
    return {seed: carried.rate.over(others[seed].rate) for seed, carried in own.items()}
