"""The scenarios whose speed is reported: S-LoRA with loads and a unified pool, vLLM, 60 servers; all recorded."""

from __future__ import annotations

import resource
import time
from collections.abc import Generator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import simpy

from experiments.scenarios import scenario
from experiments.studies.reading import load
from simlora.engine.cluster.simulation import Simulation

RATE_RPS = 1.4
"""Load of one A10G replica: below saturation, batch of about 20."""


@dataclass(frozen=True)
class Speed:
    """One simulation to be timed."""

    name: str
    replicas: int
    requests: int
    fast_forward: bool = True
    target_rps: float | None = None
    command: tuple[str, ...] = ()
    """Instead of S-LoRA's at so many requests."""
    router: str = "most_idle"
    cores: int = 1

    def overrides(self) -> list[str]:
        """Return it as a command line."""
        if self.command:
            return [*self.command, f"fast_forward={str(self.fast_forward).lower()}"]
        return [
            "workload=synthetic",
            "workload.adapters=200",
            "workload.ranks=[64,32,16,8]",
            f"workload.arrivals.rate_rps={RATE_RPS * self.replicas}",
            "workload/prompt_tokens=uniform",
            "workload.prompt_tokens.lo=8",
            "workload.prompt_tokens.hi=512",
            "workload/output_tokens=uniform",
            "workload.output_tokens.lo=8",
            "workload.output_tokens.hi=512",
            "workload.duration_s=null",
            f"workload.requests={self.requests}",
            f"cluster.replicas={self.replicas}",
            f"router={self.router}",
            "replica.kv_token_budget=14500",
            f"fast_forward={str(self.fast_forward).lower()}",
        ]


def _speed(tree: Mapping[str, Any]) -> Speed:
    return Speed(**{**tree, "command": tuple(tree.get("command", ()))})


_TREE = load(Path(__file__).with_suffix(".yaml"))
SCENARIOS = tuple(map(_speed, _TREE["scenarios"]))
PAIRS = {name: (_speed(above), _speed(below)) for name, (above, below) in _TREE["pairs"].items()}
"""Ratios of requests/s, by what they say."""


def measure(speed: Speed) -> dict[str, float]:
    """Simulate once in this process; call it in a fresh one, as peak memory is the process's."""
    simulation = Simulation(scenario(speed.overrides()))
    started = time.perf_counter()
    recorder = simulation.run(cores=speed.cores)
    wall_s = time.perf_counter() - started
    recorder.requests()
    return {
        "wall_s": wall_s,
        "requests_per_s": recorder.ended / wall_s,
        "token_steps_per_s": recorder.token_steps / wall_s,
        "events_per_request": (recorder.ended + recorder.boundaries) / recorder.ended,
        "peak_memory_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024.0,
    }


def simpy_timeouts_per_s(timeouts: int = 300_000) -> float:
    """Return how many bare timeouts SimPy gets through in a second, which says how fast the machine is."""
    environment = simpy.Environment()

    def process() -> Generator[simpy.Event, None, None]:
        for _ in range(timeouts):
            yield environment.timeout(1.0)

    environment.process(process())
    started = time.perf_counter()
    environment.run()
    return timeouts / (time.perf_counter() - started)
