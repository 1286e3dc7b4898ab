"""Print what one decision of a router or a scheduler costs, in CPU microseconds, and how that grows.

    python -m experiments.speed.growth [--calls 300]

A router's decision is timed with the counting of the request at the replica that it chooses, there and no longer there;
every replica has ROUTED requests, of the adapters in turn. A scheduler's is that beside a batch that runs, each request
with an adapter of its own, with nothing waiting. Each figure is the least of five runs of so many calls.
"""

from __future__ import annotations

from collections.abc import Callable
from time import process_time

from experiments.scenarios import scenario
from experiments.studies.command import option, program
from simlora.core.build import BUILD
from simlora.core.checks import whole
from simlora.engine.cluster.driven import DrivenSimulation
from simlora.engine.cluster.submissions import Submitted

ROUTED = 8
"""Requests of each replica, of which half wait."""
TURNS = 5
ROUTERS = ("most_idle", "adapter_affinity", "first_fit", "pending_time", "rank_aware")
SCHEDULERS = {"fcfs": "slora", "chunked_prefill": "vllm", "credit": "dlora_proactive"}
"""A system of each scheduler."""
REPLICAS, ADAPTERS, BATCHES = (1, 4, 16, 64, 256, 1024), (100, 10_000), (4, 16, 64, 256)
COMMON = (
    "workload=synthetic",
    "workload.ranks=[8,16,32,64]",
    "workload.duration_s=null",
    "workload.requests=1",
    "replica.kv_token_budget=100000000",
    "migration=stay",
)
REQUEST = Submitted(prompt_tokens=64, output_tokens=10_000)


def simulation(requests: int, adapters: int, *overrides: str) -> DrivenSimulation:
    """Return a run in which so many requests, of adapters in turn, have arrived, and those that can are running."""
    run = DrivenSimulation(scenario([*COMMON, f"workload.adapters={adapters}", *overrides]))
    for id in range(requests):
        run.submit(REQUEST._replace(adapter=id % adapters), arrival_s=1e-3 * id)
    run.advance(1e-3 * requests + 20.0)
    return run


def route_us(router: str, replicas: int, adapters: int, calls: int) -> float:
    """Return what a decision of a router takes."""
    run = simulation(
        ROUTED * replicas,
        adapters,
        "system=cached",
        f"router={router}",
        f"cluster.replicas={replicas}",
        f"replica.max_num_seqs={ROUTED // 2}",
    )
    policy, view, loads = run.scenario.policies.router, run.view, run.loads
    candidates = run.fleet.everywhere
    known = [run.submit(REQUEST._replace(adapter=id % adapters)) for id in range(calls)]

    def decide() -> None:
        for request in known:
            chosen = policy.route(request, candidates, view)
            if loads is not None:
                loads.arrive(chosen, request)
                loads.leave(chosen, request)

    return _us(decide, calls)


def schedule_us(scheduler: str, batch: int, calls: int) -> float:
    """Return what a decision of a scheduler takes."""
    run = simulation(
        batch,
        batch,
        f"system={SCHEDULERS[scheduler]}",
        "cluster.replicas=1",
        f"replica.max_num_seqs={batch}",
        f"replica.max_loras={batch}",
    )
    (replica,) = run.fleet.replicas
    while replica.view.running < batch:
        run.advance(run.clock.now + 1.0)

    def decide() -> None:
        for _ in range(calls):
            replica.ask(replica.view)

    return _us(decide, calls)


def _us(decide: Callable[[], None], calls: int) -> float:
    found = []
    for _ in range(TURNS):
        started = process_time()
        decide()
        found.append(process_time() - started)
    return min(found) / calls * 1e6


@program(option("--calls", type=int, default=300, help="decisions of a run (default: 300)"))
def main(calls: int) -> None:
    """Print a line for each policy."""
    whole("--calls", calls, "calls", least=1)
    print(f"{BUILD}\n{'router, by replicas':<28}" + "".join(f"{each:>10,}" for each in REPLICAS))
    for router in ROUTERS:
        for adapters in ADAPTERS:
            name = f"{router}, {adapters:,} adapters"
            print(f"{name:<28}", end="", flush=True)
            for replicas in REPLICAS:
                print(f"{route_us(router, replicas, adapters, calls):>10.1f}", end="", flush=True)
            print()
    print(f"\n{'scheduler, by batch':<28}" + "".join(f"{each:>10,}" for each in BATCHES))
    for scheduler in SCHEDULERS:
        found = [schedule_us(scheduler, batch, calls) for batch in BATCHES]
        print(f"{scheduler:<28}" + "".join(f"{each:>10.1f}" for each in found), flush=True)
