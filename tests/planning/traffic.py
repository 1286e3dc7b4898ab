"""Traffic of two dozen adapters, and a machine for it."""

from simlora.planning.machines import Excluded, Machine, Traffic, machine, traffic_of
from simlora.planning.tuning import fixed

TRAFFIC = (
    "model=llama_3_1_8b",
    "workload=per_adapter",
    "workload.adapters=24",
    "workload.ranks=[8,16]",
    "workload.rates_rps=[0.8,1.2]",
    "workload.duration_s=40",
    "slo.ttft_s=1",
    "slo.tpot_s=0.05",
)
OTHERS = tuple(one for one in TRAFFIC if not one.startswith("workload"))
ALIKE = (*TRAFFIC, "workload.ranks=[16]")
"""Adapters of one rank: no replicas are set apart for some of them."""
PRICES = {"l40s": 1.9, "h100_80g": 2.99}


def on(gpu: str = "l40s", user: tuple[str, ...] = TRAFFIC) -> tuple[Machine, Traffic]:
    of = traffic_of(user, "vllm")
    chosen = machine(user, "vllm", gpu, 1, 1.9, of, fixed(of))
    assert not isinstance(chosen, Excluded)
    return chosen, of
