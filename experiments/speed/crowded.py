"""Print what a request costs a replica that holds much already, in CPU microseconds, and how that grows.

    python -m experiments.speed.crowded [--requests 400]

FastLibra's is over a stretch of its four hours, at the end of which so many segments are in the tree. The others are
those of so many short requests for an adapter in HBM: of vLLM with 32 slots, all in use, while others wait for a slot,
and of asynchronous loading beside a batch of 16, while others wait for their weights. Each is the least of three runs.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from time import process_time

from experiments.scenarios import scenario
from experiments.speed.scenarios import SWAPPED
from experiments.studies.command import ended, parser_of
from simlora.core.build import BUILD
from simlora.core.checks import whole
from simlora.engine.cluster.driven import DrivenSimulation, Submitted
from simlora.engine.cluster.simulation import Simulation

TURNS = 3
STRETCHES_S = (350, 1_400, 2_800, 4_200, 7_000, 10_500, 14_400)
WAITING, LOADING = (0, 100, 1_000, 10_000, 100_000), (0, 16, 64, 256, 1_024)
COMMON = (
    "workload=synthetic",
    "workload.ranks=[8]",
    "workload.duration_s=null",
    "workload.requests=1",
    "replica.kv_token_budget=100000000",
    "replica.max_num_seqs=4096",
)
LONG, SHORT = Submitted(64, 100_000), Submitted(64, 8, adapter=0)
APART_S = 0.1
BATCH = 16


def stretches() -> list[tuple[int, float]]:
    """Return the segments in FastLibra's tree at the end of each stretch, and what its requests cost."""
    found, before_s, before = [], 0.0, 0
    overrides = [each for each in SWAPPED.overrides() if not each.startswith("workload.duration_s")]
    for duration_s in STRETCHES_S:
        run = Simulation(scenario([*overrides, f"workload.duration_s={duration_s}"]))
        started = process_time()
        ended = run.run().ended
        took_s = process_time() - started
        tree = run.fleet.replicas[0].kv.tree  # type: ignore[attr-defined]
        found.append((tree.segments, (took_s - before_s) / (ended - before) * 1e6))
        before_s, before = took_s, ended
    return found


def beside_waiting_us(waiting: int, requests: int) -> float:
    """Return what a request costs that overtakes so many that wait for a slot."""
    run = DrivenSimulation(
        scenario([*COMMON, "system=vllm", f"workload.adapters={waiting + 32}", "replica.max_loras=32"])
    )
    for id in range(32):
        run.submit(LONG._replace(adapter=id))
    run.advance(60.0)
    for id in range(waiting):
        run.submit(SHORT._replace(adapter=32 + id))
    run.advance(61.0)
    assert run.fleet.replicas[0].view.waiting.count == waiting, "other requests wait than are to"
    return _served_us(run, requests)


def beside_loading_us(loading: int, reserve: str, requests: int) -> float:
    """Return what a request costs while so many wait for weights that do not come, with memory reserved so."""
    run = DrivenSimulation(
        scenario(
            [
                *COMMON,
                "system=slora",
                "loader=asynchronous",
                "replica.max_wait_tokens=0",
                f"replica.reserve={reserve}",
                f"workload.adapters={loading + 1}",
            ]
        )
    )
    for _ in range(BATCH):
        run.submit(LONG._replace(adapter=0))
    run.advance(60.0)
    (replica,) = run.fleet.replicas
    replica.host_link.slow_down(1e9)
    for id in range(loading):
        run.submit(SHORT._replace(adapter=1 + id))
    run.advance(120.0)
    assert replica.view.loading == loading, "other requests wait for their weights than are to"
    return _served_us(run, requests)


def _served_us(run: DrivenSimulation, requests: int) -> float:
    """Serve so many short requests, and one before; return the CPU time of each."""
    run.submit(SHORT)
    run.advance(run.clock.now + 10.0)
    before = run.recorder.ended
    for place in range(requests):
        run.submit(SHORT, run.clock.now + APART_S * place)
    started = process_time()
    while run.recorder.ended < before + requests:
        run.advance(run.clock.now + 1.0)
    return (process_time() - started) / requests * 1e6


def main(arguments: Sequence[str] | None = None) -> int:
    """Print a line for each kind of crowd; return the exit status."""
    parser = parser_of("experiments.speed.crowded", __doc__)
    parser.add_argument("--requests", type=int, default=400, help="short requests of a run (default: 400)")
    options = parser.parse_args(arguments)
    return ended(lambda: _print(options.requests))


def _print(requests: int) -> None:
    whole("--requests", requests, "requests", least=1)
    print(f"{BUILD}\n{'vLLM, by waiting requests':<34}" + "".join(f"{each:>10,}" for each in WAITING))
    found = [min(beside_waiting_us(each, requests) for _ in range(TURNS)) for each in WAITING]
    print(f"{'':<34}" + "".join(f"{each:>10.1f}" for each in found), flush=True)
    print(f"{'asynchronous, by loading requests':<34}" + "".join(f"{each:>10,}" for each in LOADING))
    for reserve in ("full", "paged"):
        found = [min(beside_loading_us(each, reserve, requests) for _ in range(TURNS)) for each in LOADING]
        print(f"{reserve:<34}" + "".join(f"{each:>10.1f}" for each in found), flush=True)
    tree = stretches()
    print(f"{'FastLibra, by segments':<34}" + "".join(f"{segments:>10,}" for segments, _ in tree))
    print(f"{'':<34}" + "".join(f"{each:>10.1f}" for _, each in tree))


if __name__ == "__main__":
    sys.exit(main())
