"""What the composition that was found carries of workloads that were not looked at before.

`python -m experiments.composition.unseen [--seeds 5]`: on the same four GPUs, beside the published systems as they are
tuned to the training workloads. Nothing was searched, tuned or judged on these workloads while policies were written.
"""

from __future__ import annotations

from pathlib import Path

from experiments.composition.judging import NAME, TITLE, ahead, cell_of, overall, rival_of
from experiments.cross_table.capacities import span, times
from experiments.cross_table.compared import compare
from experiments.cross_table.page import spanned
from experiments.cross_table.tuning import tuned
from experiments.cross_table.world import TRAINING, UNSEEN, System, Workload, read, workload_of
from experiments.studies.command import JOBS, option, program
from experiments.studies.reading import load
from simlora.core.checks import whole

FILE = Path(__file__).with_suffix(".yaml")


def unseen() -> list[Workload]:
    """Return the workloads."""
    return [workload_of(name, entry, f"{FILE}: {name}", (UNSEEN,)) for name, entry in load(FILE).items()]


@program(
    option("--seeds", type=int, default=5, help="of each capacity (default: 5)"),
    JOBS,
    about=__doc__,
    epilog="It reads SIMLORA_TRACE_DIR.",
)
def main(seeds: int, jobs: int) -> None:
    """Search and print."""
    whole("--seeds", seeds, "seeds", least=1)
    world = read()
    published = [one.system for one in tuned(world, list(world.systems.values()), world.of(TRAINING), jobs)]
    composed = System(NAME, TITLE, {"system": NAME})
    rows = compare(world, [*published, composed], unseen(), range(seeds), jobs)
    ratios = ahead(rows, published)
    for row in rows:
        print(f"{row.workload.title}: {row.workload.about}")
        print(f"  {f'capacity, {row.workload.key}':60}of the composition's")
        for cell in row.cells:
            against = times(cell.carried, cell_of(row, NAME).carried)
            print(
                f"  {cell.system.title:32}{cell.refused or spanned(cell.capacity):28}{spanned(span(against.values()))}"
            )
        rival = rival_of(row, published).system.title
        print(f"  the composition over {rival}: {spanned(span(ratios[row.workload.name].values()))}")
    print(f"over the best published system of each: {spanned(overall(ratios))}")
