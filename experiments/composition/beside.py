"""What the composition that was found carries with one mechanism more, or another one.

`python -m experiments.composition.beside [--seeds 3]`: the same four GPUs, on the held-out workloads.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from experiments.composition.judging import NAME, TITLE, overall
from experiments.cross_table.capacities import Carried, search, span, times
from experiments.cross_table.page import spanned
from experiments.cross_table.world import HELD_OUT, System, Workload, World, read
from experiments.studies.command import JOBS, option, program
from experiments.studies.reading import load
from simlora.core.checks import whole

FOUND: Mapping[str, Any] = {"system": NAME}
SERVER: Mapping[str, Any] = {"cluster.replicas": 3}


def _carried(
    world: World,
    system: System,
    workloads: Sequence[Workload],
    seeds: Sequence[int],
    jobs: int,
    expected: Mapping[str, float],
) -> dict[str, dict[int, Carried]]:
    """Return what a system carries by workload and seed."""
    near = {(system.name, name): rate for name, rate in expected.items()}
    found = search(world, [(system, workload) for workload in workloads], seeds, jobs, near)
    result = {name: by_seed for (_, name), by_seed in found.items()}
    for name, carried in result.items():
        if reason := carried[seeds[0]].refused:
            print(f"  refused: {system.title} on {name}: {reason}")
    return result


@program(option("--seeds", type=int, default=3, help="of each capacity (default: 3)"), JOBS, about=__doc__)
def main(seeds: int, jobs: int) -> None:
    """Search and print."""
    whole("--seeds", seeds, "seeds", least=1)
    world = read()
    workloads, every = world.of(HELD_OUT), range(seeds)
    base = System(NAME, TITLE, FOUND)
    found = _carried(world, base, workloads, every, jobs, {})
    expected = {name: by_seed[0].met_rps for name, by_seed in found.items()}
    print(
        "Capacity of the composition with one mechanism more, or another one, over its own, of each held-out workload:"
    )
    print(f"{'':22}{'all':>22}" + "".join(f"{workload.name:>22}" for workload in workloads))
    for name, settings in load(Path(__file__).with_suffix(".yaml")).items():
        own = world.but(SERVER) if "cluster.lora_server_gpus" in settings else world
        system = System(f"{NAME} with {name}", name, {**FOUND, **settings})
        theirs = _carried(own, system, workloads, every, jobs, expected)
        ratios = {one: times(by_seed, found[one]) for one, by_seed in theirs.items()}
        cells = [spanned(span(ratios[workload.name].values())) for workload in workloads]
        print(
            f"{name:22}{spanned(overall(ratios)):>22}" + "".join(f"{each:>22}" for each in cells), flush=True
        )
