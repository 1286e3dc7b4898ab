"""Systems whose offered load is known: queues of one and of several servers, and S-LoRA, all run by the engine.

By load and length of run it is measured how often the load label of these is right.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from joblib import Parallel, delayed
from numpy.typing import NDArray

from simlora.api.preparing import composed, ready
from simlora.core.trace import BASE_MODEL, Trace
from simlora.engine.cluster.simulation import Simulation
from simlora.engine.replica_config import ReplicaConfig
from simlora.engine.scenario import Scenario
from simlora.metrics.recorder import Recorder
from simlora.metrics.saturation import BELOW, LOADS, NEAR, PAST, WITHIN, load

SERVICE_TOKENS = 1000
"""Tokens of a mean service; a token takes a millisecond."""
SATURATING = 20_000
"""Requests that arrive at once, to measure what S-LoRA serves per second."""
SLORA = ("system=slora", "workload=synthetic", "workload.duration_s=null", "workload.arrivals.rate_rps=1")

Tokens = Callable[[np.random.Generator, int], NDArray[np.int64]]


def exponential(rng: np.random.Generator, count: int) -> NDArray[np.int64]:
    """Return service times in tokens: geometric, which is exponential but for half a token."""
    return rng.geometric(1 / SERVICE_TOKENS, count)


def constant(rng: np.random.Generator, count: int) -> NDArray[np.int64]:
    """Return service times in tokens that are all the same."""
    return np.full(count, SERVICE_TOKENS)


@dataclass(frozen=True)
class Queue:
    """M/G/c: Poisson arrivals, and a replica with a seat a server, whose steps take a millisecond however full it is.

    With `max_outstanding`, requests that find as many in the cluster are turned away.
    """

    servers: int
    tokens: Tokens
    max_outstanding: int | None = None

    def recorded(self, rho: float, requests: int, seed: int) -> Recorder:
        """Return a run of so many requests at an offered load `rho` of what is served at most."""
        rng = np.random.default_rng([seed, requests])
        arrival_s = np.cumsum(rng.exponential(1 / (rho * self.servers), requests))
        ones, tokens = np.ones(requests, dtype=np.int64), self.tokens(rng, requests) + 1
        scenario = _bare()
        trace = Trace(arrival_s, BASE_MODEL * ones, ones, tokens, tokens, scenario.trace.adapters)
        limits = replace(scenario.replica, max_num_seqs=self.servers)
        cluster = replace(scenario.cluster, max_outstanding=self.max_outstanding)
        return _run(replace(scenario, trace=trace, replica=limits, cluster=cluster))


@dataclass(frozen=True)
class Slora:
    """S-LoRA on one GPU, with lengths and adapters as `workload=synthetic` draws them."""

    overrides: tuple[str, ...] = ()

    def recorded(self, rho: float, requests: int, seed: int) -> Recorder:
        """Return a run of so many requests at an offered load `rho` of what is served at most."""
        scenario = _slora(self.overrides, requests, seed)
        trace = scenario.trace.sped_up(rho * self.served_rps)
        return _run(replace(scenario, trace=trace))

    @functools.cached_property
    def served_rps(self) -> float:
        """Requests per second while many wait: of the middle half of those that are all there at once."""
        scenario = _slora(self.overrides, SATURATING, 10_000)
        finish_s = np.sort(_run(replace(scenario, trace=scenario.trace.sped_up(1e6))).requests()["finish_s"])
        quarter = SATURATING // 4
        return 2 * quarter / float(finish_s[3 * quarter] - finish_s[quarter])


MODELS: Mapping[str, Queue | Slora] = {
    "M/M/1": Queue(1, exponential),
    "M/D/1": Queue(1, constant),
    "M/D/4": Queue(4, constant),
    "M/D/32": Queue(32, constant),
    "S-LoRA": Slora(),
}


def _run(scenario: Scenario) -> Recorder:
    return Simulation(replace(scenario, timeline=False)).run()


@functools.cache
def _slora(overrides: tuple[str, ...], requests: int, seed: int) -> Scenario:
    return ready(*composed([*SLORA, *overrides, f"workload.requests={requests}", f"seed={seed}"])).scenario


@functools.cache
def _bare() -> Scenario:
    """Return S-LoRA with a decode step of a millisecond, and nothing else that takes time."""
    scenario = _slora((), 1, 0)
    coefficients = dict.fromkeys(scenario.calibration.coefficients, 0.0)
    coefficients |= {"adapter_load.bytes_per_s": 1.0, "decode.intercept_s": 1e-3}
    limits = ReplicaConfig(
        kv_token_budget=10**9, max_num_batched_tokens=10**9, max_wait_tokens=0, reserve="full"
    )
    calibration = replace(scenario.calibration, coefficients=coefficients)
    return replace(scenario, calibration=calibration, replica=limits)


LOADS_OFFERED = (0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 1.0, 1.05, 1.1, 1.2, 1.3, 1.4, 1.5)
REQUESTS = (100, 1_000, 5_000)


def right(label: str, rho: float) -> bool:
    """Whether what a label says is so of an offered load `rho`; `unknown` says nothing, and never is."""
    return {BELOW: rho < 1, NEAR: WITHIN < rho < 1 / WITHIN, PAST: rho >= 1}.get(label, False)


def labels(model: str, rho: float, requests: int, seeds: Iterable[int]) -> Counter[str]:
    """Return how many runs have which label."""
    return Counter(load(MODELS[model].recorded(rho, requests, seed).requests())["label"] for seed in seeds)


def table(runs: int, sizes: Sequence[int] = REQUESTS, jobs: int = -1) -> None:
    """Print the share of right labels of so many runs, and of each label, by model, length and offered load."""
    print(f"share of right labels in {runs} runs, and of " + ", ".join(LOADS))
    print(f"{'model':<8}{'requests':>9}{'load':>7}{'right':>8}" + "".join(f"{name:>9}" for name in LOADS))
    cells = [(model, rho, size) for model in MODELS for size in sizes for rho in LOADS_OFFERED]
    counts = Parallel(n_jobs=jobs, return_as="generator")(delayed(labels)(*one, range(runs)) for one in cells)
    for (model, rho, size), count in zip(cells, counts, strict=True):
        share = sum(number for label, number in count.items() if right(label, rho)) / runs
        shares = "".join(f"{count[name] / runs:>9.1%}" for name in LOADS)
        print(f"{model:<8}{size:>9,}{rho:>7.2f}{share:>8.1%}{shares}", flush=True)
