"""All systems on all papers' workloads: `python -m experiments.cross_table [--workload NAME …] [--system NAME …]`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from experiments.cross_table.compared import Row, compare, with_figures
from experiments.cross_table.page import PICTURE, draw, markdown, spanned, why
from experiments.cross_table.slots import exchanges, parts
from experiments.cross_table.tuning import tuned
from experiments.cross_table.world import TRAINING, System, World, read
from experiments.studies.command import JOBS, made, option, program
from experiments.studies.reading import known
from simlora.api.cache import HELP
from simlora.core.checks import whole

BASE = "slora"
COMPOSED = System("simlora", "simlora", {"system": "simlora"})
"""What a search composed of the others' policies, on the training workloads (experiments/composition)."""
SEEDS = 3
DOCS = Path(__file__).resolve().parents[2] / "docs"


def with_composed(world: World) -> World:
    """Return a world that has the composition too."""
    return replace(world, systems={**world.systems, COMPOSED.name: COMPOSED})


NAMES = with_composed(read())


def _printed(row: Row) -> str:
    lines = [f"{row.workload.title}: capacity in requests/s, and of the best's"]
    for cell in row.cells:
        told = (
            f"{spanned(cell.capacity):<28}{spanned(row.against_best(cell))}"
            if not cell.refused
            else cell.refused
        )
        lines.append(f"  {cell.system.title:<30}{told}")
    return "\n".join(lines)


@program(
    option("--workload", action="append", help=f"only this one: {', '.join(NAMES.workloads)}"),
    option("--system", action="append", help=f"only this one: {', '.join(NAMES.systems)}"),
    option("--seeds", type=int, default=SEEDS, help=f"searches of each capacity (default: {SEEDS})"),
    JOBS,
    option(
        "--docs",
        type=Path,
        help="folder of cross_table.md and its figure (default: docs, for the whole table with the default seeds)",
    ),
    about="Put every system to every paper's workload, on the same GPUs and within the same SLO: what each carries, "
    "what it costs, which system is ahead and which of its slots does it.",
    epilog=f"The whole table takes about 18 minutes of two cores. {HELP}",
)
def main(
    workload: Sequence[str] | None, system: Sequence[str] | None, seeds: int, jobs: int, docs: Path | None
) -> None:
    """Compare, print and write."""
    whole("--seeds", seeds, "searches", least=1)
    world = with_composed(read())
    workloads = [
        world.workloads[known(name, world.workloads, "--workload")] for name in workload or world.workloads
    ]
    systems = [world.systems[known(name, world.systems, "--system")] for name in system or world.systems]
    docs = docs or (None if workload or system or seeds != SEEDS else DOCS)
    if docs is not None:
        made((docs / PICTURE).parent, "--docs")
    systems = [one.system for one in tuned(world, systems, world.of(TRAINING), jobs)]
    rows = compare(world, systems, workloads, range(seeds), jobs)
    rows = with_figures(world, rows, range(seeds), jobs)
    base = world.systems[BASE]
    winners = [(row, row.best) for row in rows]
    swaps = [exchanges(world, cell.system, base, row.workload) for row, cell in winners]
    swapped = parts(world, winners, swaps, range(seeds), jobs)
    reasons = dict(zip((row.workload.name for row in rows), swapped, strict=True))
    for row in rows:
        print(_printed(row))
        print(f"  {row.best.system.title}: {why(reasons[row.workload.name])}")
    if docs is not None:
        draw(rows, systems, docs / PICTURE)
        (docs / "cross_table.md").write_text(markdown(world, rows, reasons, seeds), encoding="utf-8")
        print(docs / "cross_table.md")
