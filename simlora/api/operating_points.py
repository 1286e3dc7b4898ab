"""Operating points: what one replica processes within the SLO, by rank, searched for by simulating it alone."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from omegaconf import DictConfig, OmegaConf

from simlora.api.cache import Cache, open_cache
from simlora.api.inputs import Inputs, files_of, foreign_code
from simlora.config.setup import Setup, prepare, resolved
from simlora.core.bisection import Bracket
from simlora.core.errors import InputError
from simlora.core.random import stream
from simlora.core.trace import AdapterSpec, Trace
from simlora.engine.clients import Clients
from simlora.engine.cluster.simulation import Simulation
from simlora.engine.scenario import Scenario
from simlora.metrics.slo import SloTargets, attainment

Lengths = NDArray[np.int64]
ATTAINMENT_LEAST = 0.95
"""The share of requests within the SLO: LoRAServe's limits are on the 95th percentile (section V)."""
LASTS = 20.0
"""A search's runs last so many times the longest target, or a queue that only grows would stay within it."""
REQUESTS_LEAST, REQUESTS_MOST = 2000, 200_000
LENGTHS = 2000
"""So many of the workload's first requests give their lengths: the same at every rate."""
PRECISION = 0.02
RANKS_MOST = 8
"""With more ranks than this, only so many are simulated; the placement interpolates between them."""
LEAST_RPS, MOST_RPS = 1e-4, 1e4
ALONE: Mapping[str, Any] = {
    "seed": 0,
    "placement": {"_target_": "simlora.policies.placement.replicate_all.ReplicateAll"},
    "router": {"_target_": "simlora.policies.routing.round_robin.RoundRobin"},
    "migration": {"_target_": "simlora.policies.migration.stay.Stay"},
    "autoscaler": {"_target_": "simlora.policies.scaling.fixed.Fixed"},
    "timeline": False,
    "perfetto": False,
    "until_s": None,
}
IRRELEVANT = ("workload", "clients", "speedup", "report", "progress", "cores", "fast_forward")
CLUSTER_ALONE: Mapping[str, Any] = {
    "replicas": 1,
    "status_every_s": None,
    "max_outstanding": None,
    "adapter_rps": None,
    "adapter_pool": "replicated",
    "network": "infiniband_hdr",
    "storage": "nvme_pcie_3_x4",
    "failures": [],
    "stragglers": [],
    "slow_links": [],
    "replica_groups": [],
    "prefill_replicas": 0,
    "least_replicas": 1,
    "start_s": 0,
    "warm_up_adapters": 0,
}
HOST_ALONE: Mapping[str, Any] = {"replicas": 1, "memory_bytes": None}
"""What is set for one replica by itself; all else is as the run has it."""


def filled(config: DictConfig, choices: Mapping[str, str]) -> tuple[DictConfig, tuple[str, ...]]:
    """Return a configuration whose placement.operating_points, if they are null, are found; and a notice that says so.

    One replica serves Poisson arrivals of one rank's requests, whose lengths are the workload's (under seed 0: what a
    server can do does not depend on the run's seed), for 20 times the longest target. The highest rate at which 95 %
    of them meet the SLO, to 2 %, times their mean tokens, prompt and output, is the rank's operating point.
    Source: LoRAServe §IV-A: "the maximum number of tokens per second the LLM inference server can process using an
    adapter of a specific rank under SLO constraints"; it does not tell with which requests. Kept as runs are kept.
    Raises InputError without an SLO, and if no rate is low enough.
    """
    placement = OmegaConf.select(config, "placement")
    if not isinstance(placement, DictConfig) or placement.get("operating_points", 0) is not None:
        return config, ()
    alone = _alone(config)
    read = files_of(resolved(alone))
    setup = prepare(alone, choices)
    if not setup.targets.set:
        raise InputError(
            "placement.operating_points are to be found within an SLO, and no slo.* is set; set slo.ttft_s, or give "
            "them, such as placement.operating_points={8: 5500, 128: 4500}"
        )
    ranks = _ranks(setup.scenario.trace)
    if not ranks:
        raise InputError(
            "placement.operating_points cannot be found: no request of the workload has an adapter"
        )
    points = _kept(alone, setup, ranks, read)
    found = OmegaConf.merge(config, {"placement": {"operating_points": points}})
    assert isinstance(found, DictConfig)
    told = ", ".join(f"{tps:,.0f} (rank {rank})" for rank, tps in points.items())
    return found, (f"operating points of one replica, in tokens per second: {told}.",)


def _alone(config: DictConfig) -> DictConfig:
    tree = resolved(config) | dict(ALONE)
    for key, values in (("cluster", CLUSTER_ALONE), ("host", HOST_ALONE)):
        if isinstance(tree.get(key), dict):  # if not, `prepare` says so
            tree[key] |= values
    found: DictConfig = OmegaConf.create(tree)
    return found


def _ranks(trace: Trace) -> list[int]:
    """Return the ranks to search for, the smallest first: all, or RANKS_MOST of them, the ends included."""
    ranks = sorted({adapter.rank for adapter in trace.adapters})
    if len(ranks) <= RANKS_MOST:
        return ranks
    return [ranks[i] for i in np.linspace(0, len(ranks) - 1, RANKS_MOST).round().astype(int).tolist()]


def _kept(alone: DictConfig, setup: Setup, ranks: list[int], read: Inputs) -> dict[int, float]:
    """Return the points, from the cache if nothing that they depend on has changed."""
    depends = {key: value for key, value in resolved(alone).items() if key not in IRRELEVANT}
    prompts, outputs = _lengths(setup.scenario.trace, LENGTHS)
    lengths = hashlib.sha256(prompts.tobytes() + outputs.tobytes()).hexdigest()
    question = [depends, dict(read.files), lengths, ranks]
    cache: Cache = open_cache()
    path = cache.named(["operating points", question])
    kept = cache.read(path, "ranks", ranks, "points")
    if kept is not None:
        return dict(zip(ranks, kept, strict=True))
    points: dict[int, float] = {}
    guess_rps = 1.0
    for rank in ranks:
        guess_rps = highest_rate(setup.scenario, rank, setup.targets, guess_rps)
        points[rank] = round(guess_rps * float(prompts.mean() + outputs.mean()), 1)
    if not foreign_code([depends]) and not read.doubt:
        with suppress(InputError):  # a run needs no folder that can be written
            cache.write(path, {"ranks": ranks, "points": list(points.values())})
    return points


def highest_rate(scenario: Scenario, rank: int, targets: SloTargets, guess_rps: float = 1.0) -> float:
    """Return the most requests per second, of one adapter of this rank, of which 95 % meet all targets.

    Raises InputError if even a request at a time does not.
    """
    bracket = Bracket(guess_rps, LEAST_RPS, MOST_RPS, PRECISION)
    while (rate_rps := bracket.ask) is not None:
        trace = of_rank(scenario.trace, rank, rate_rps, LASTS * max(targets.set.values()))
        simulation = Simulation(replace(scenario, trace=trace, clients=Clients()))
        simulation.run()
        bracket = bracket.told(
            rate_rps, attainment(simulation.recorder.requests(), targets) >= ATTAINMENT_LEAST
        )
    limits = ", ".join(f"slo.{name}={limit:g}" for name, limit in targets.set.items())
    if bracket.low is None:
        raise InputError(
            f"placement.operating_points cannot be found: with rank {rank} less than {ATTAINMENT_LEAST:.0%} of the "
            f"requests meet {limits} even at {LEAST_RPS:g} requests/s; set a target that one replica can meet"
        )
    if bracket.high is None:
        raise InputError(
            f"placement.operating_points cannot be found: requests meet {limits} at any rate; set slo.ttft_s, which a "
            "queue breaks"
        )
    return bracket.low


def of_rank(trace: Trace, rank: int, rate_rps: float, span_s: float) -> Trace:
    """Return about `span_s` of a Poisson process of one adapter's requests, their lengths those of a trace in turn."""
    count = min(max(round(rate_rps * span_s), REQUESTS_LEAST), REQUESTS_MOST)
    prompts, outputs = _lengths(trace, count)
    return Trace(
        arrival_s=np.cumsum(stream(0, "arrivals").exponential(size=count)) / rate_rps,
        adapter=np.zeros(count, dtype=np.int64),
        prompt_tokens=prompts,
        output_tokens=outputs,
        max_output_tokens=outputs,
        adapters=(AdapterSpec(f"rank_{rank}", rank),),
    )


def _lengths(trace: Trace, count: int) -> tuple[Lengths, Lengths]:
    """Return prompt and output tokens [count]: those of the first requests, again and again."""
    prompts, outputs = trace.prompt_tokens[:LENGTHS], trace.output_tokens[:LENGTHS]
    return np.resize(prompts.astype(np.int64), count), np.resize(outputs.astype(np.int64), count)
