"""The scenarios whose speed is reported: S-LoRA with loads and a unified pool, vLLM, 60 servers; all recorded."""

from __future__ import annotations

import resource
import time
from collections.abc import Generator
from dataclasses import dataclass, replace

import simpy

from experiments.scenarios import scenario
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


VLLM_HOUR = (
    "system=vllm",
    "gpu=h100_64g",
    "model=llama_3_1_8b",
    "replica.max_lora_rank=16",
    "replica.max_num_seqs=2048",
    "scheduler.max_batched_tokens=2048",
    "workload=per_adapter",
    "workload.adapters=384",
    "workload.ranks=[8,8,16]",
    "workload.rates_rps=[0.05,0.0125,0.003125]",
    "workload.duration_s=3600",
    "until_s=3600",
)
"""8.4 requests/s: 30,000 in an hour. The more slots, the more of them are reloaded; few make requests wait."""
HOURS = tuple(
    Speed(
        f"vLLM's hour, {slots} slots",
        1,
        30_362,
        target_rps=60_000,
        command=(*VLLM_HOUR, f"replica.max_loras={slots}"),
    )
    for slots in (32, 160)
)
ROUTED = Speed(
    "60, rank-aware router",
    60,
    100_000,
    target_rps=40_000,
    command=(
        "system=cached",
        "router=rank_aware",
        "cluster.replicas=60",
        "workload=maf",
        "workload.adapters=40000",
        "workload.ranks=[8,16,32,64]",
        "workload.arrivals.rate_rps=340",
        "workload.duration_s=null",
        "workload.requests=100000",
        "slo.latency_per_output_token_s=0.044",
    ),
)
"""CaraServe's 60 servers at 340 requests/s (its Figure 19)."""
DISPATCHED = Speed(
    "32, dLoRA without its ILP",
    32,
    20_000,
    target_rps=17_000,
    command=(
        "system=dlora_proactive",
        "cluster.replicas=32",
        "workload=functions",
        "workload.adapters=128",
        "workload.stride=1",
        "workload.rate_rps=40",
        "workload.duration_s=500",
    ),
)
"""dLoRA's 32 GPUs and 128 adapters, at half of what they take (its Figure 9)."""
SWAPPED = Speed(
    "FastLibra, 100,000 nodes",
    1,
    173_476,
    target_rps=30_000,
    command=(
        "system=fastlibra",
        "workload=agent",
        "workload.rate_rps=12",
        "workload.duration_s=14400",
        "replica.host_kv_bytes=4.0e+12",
    ),
)
"""Four hours of agents on a host that forgets nothing: 104,886 segments in the tree at the end."""
PLANNED = Speed(
    "LoRAServe, eight hours",
    4,
    250_138,
    target_rps=83_000,
    command=(
        "system=loraserve",
        "cluster.replicas=4",
        "workload=loraserve_production",
        "workload.rate_rps=30",
        "placement.operating_points={8: 16678, 16: 16144, 32: 14966, 64: 13285, 128: 10814}",
    ),
)
"""LoRAServe's production-like trace, placed anew every minute, in less than 30 s. The points are those it finds."""
SCENARIOS = (
    Speed("1 replica", 1, 10_000, target_rps=100_000),
    Speed("8 replicas", 8, 10_000, target_rps=100_000),
    Speed("1 replica", 1, 100_000),
    Speed("8 replicas", 8, 100_000),
    Speed("1,000 replicas", 1_000, 100_000, target_rps=50_000),
    Speed("1,000 in turns", 1_000, 100_000, router="round_robin"),
    Speed("1 replica", 1, 1_000_000),
    Speed("1,000 replicas", 1_000, 1_000_000, target_rps=50_000),
    Speed("1,000 in turns", 1_000, 1_000_000, router="round_robin"),
    Speed("1,000 in turns, 2 cores", 1_000, 1_000_000, router="round_robin", cores=2),
    Speed("8 in turns", 8, 1_000_000, router="round_robin"),
    Speed("8 in turns, 2 cores", 8, 1_000_000, router="round_robin", cores=2),
    *HOURS,
    ROUTED,
    DISPATCHED,
    SWAPPED,
    PLANNED,
)
ONE, EIGHT = Speed("1 replica", 1, 10_000), Speed("8 replicas", 8, 10_000)
PAIRS = {
    "1 replica, 10,000 requests: fast-forward over the plain loop": (ONE, replace(ONE, fast_forward=False)),
    "8 replicas, 10,000 requests: fast-forward over the plain loop": (
        EIGHT,
        replace(EIGHT, fast_forward=False),
    ),
    "cost of a request: 1,000 replicas over 1, 100,000 requests": (
        Speed("1 replica", 1, 100_000),
        Speed("1,000 replicas", 1_000, 100_000, target_rps=50_000),
    ),
    "cost of a request: 100,000 requests over 10,000, 1 replica": (ONE, Speed("1 replica", 1, 100_000)),
    "cost of a request: vLLM with 32 slots over S-LoRA": (ONE, HOURS[0]),
    "cost of a request: vLLM with 160 slots over S-LoRA": (ONE, HOURS[1]),
}
"""Ratios of requests/s, the two measured in turn, because these machines change their speed by the minute."""


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
