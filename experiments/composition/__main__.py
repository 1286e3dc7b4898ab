"""Search for a system that beats all published ones: `python -m experiments.composition [--trials 100] [--seeds 3]`."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import pandas as pd

from experiments.composition.drawing import draw_ahead, draw_search, text
from experiments.composition.frontier import alone, as_published, in_other_worlds, told_wrong
from experiments.composition.judging import NAME, cell_of, chosen, rival_of
from experiments.composition.page import AHEAD, PROGRESS, Study, against_one, markdown, verdict
from experiments.composition.search import Tried, explore
from experiments.composition.space import Space
from experiments.composition.space import read as read_space
from experiments.cross_table.capacities import Span, search, span
from experiments.cross_table.compared import compare
from experiments.cross_table.page import spanned
from experiments.cross_table.slots import exchanges, parts
from experiments.cross_table.tuning import tuned
from experiments.cross_table.world import HELD_OUT, TRAINING, System, World, read
from experiments.studies.command import JOBS, made, option, program
from simlora.api.cache import HELP
from simlora.core.checks import whole

BASE = "slora"
ROOT = Path(__file__).resolve().parents[2]
SYSTEM = ROOT / "simlora" / "conf" / "system" / f"{NAME}.yaml"
TRIALS, SEEDS = 100, 3


def _study(world: World, space: Space, trials: int, seeds: Sequence[int], jobs: int) -> Study:
    base, training = world.systems[BASE], world.of(TRAINING)
    searched = explore(world, space, training, trials, jobs, _tell)
    found = chosen(world, searched.tried, base, training, jobs)
    rivals = tuned(world, list(world.systems.values()), training, jobs)
    published = [one.system for one in rivals]
    rows = compare(world, [found.system, *published], list(world.workloads.values()), seeds, jobs)
    held_out = [row for row in rows if row.workload.part == HELD_OUT]
    cells = [(row, cell_of(row, NAME)) for row in held_out]
    others = [*as_published(space, found.system), *told_wrong(world, found.system)]
    swaps = [[*exchanges(world, found.system, base, row.workload), *others] for row in held_out]
    swapped = parts(world, cells, swaps, seeds, jobs)
    here = {
        (cell.system.name, row.workload.name): cell.carried[seeds[0]].met_rps
        for row in rows
        for cell in row.cells
    }
    return Study(
        search=searched,
        found=found,
        text=text(found.system, world.same),
        rows=rows,
        published=published,
        ablation={row.workload.name: one for row, one in zip(held_out, swapped, strict=True)},
        oracle=_oracle(world, found.system, seeds, here, jobs),
        alone=alone(searched.tried, [one.carried for one in rivals], training),
        others=in_other_worlds(
            world, [row.workload for row in held_out], found.system, published, here, jobs
        ),
        seeds=len(seeds),
    )


def _tell(tried: Sequence[Tried]) -> None:
    one = max((one for one in tried if one.ranks), key=lambda one: one.score, default=None)
    if one is not None and sys.stderr.isatty():
        print(f"\r{len(tried)} trials; best is {one.number}: {one.composition}", file=sys.stderr)


def _oracle(
    world: World, system: System, seeds: Sequence[int], here: Mapping[tuple[str, str], float], jobs: int
) -> dict[str, Span]:
    """Return what a system would carry if all adapters were on the GPU from the start, by workload.

    `here`: what it carries, in requests/s.
    """
    settings = {key: value for key, value in system.settings.items() if not key.startswith("loader.")}
    ideal = System(
        f"{system.name} with all adapters on the GPU", system.title, {**settings, "loader": "cached"}
    )
    near = {(ideal.name, name): here[system.name, name] for name in world.workloads}
    found = search(world, [(ideal, each) for each in world.workloads.values()], seeds, jobs, near)
    return {name: span(one.rate for one in by_seed.values()) for (_, name), by_seed in found.items()}


def _print(study: Study) -> None:
    for line in verdict(study.ahead(HELD_OUT), study.titles):
        print(line)
    print(against_one(study))
    for part in (HELD_OUT, TRAINING):
        for name, by_seed in study.ahead(part).items():
            print(f"  {part:<9} {name:<16} {spanned(span(by_seed.values()))}")


def _write(study: Study, docs: Path) -> None:
    draw_search(study.search.tried, study.search.begun, docs / PROGRESS)
    ratios = {**study.ahead(HELD_OUT), **study.ahead(TRAINING)}
    rivals = {row.workload.name: rival_of(row, study.published).system.title for row in study.rows}
    draw_ahead([*study.of(HELD_OUT), *study.of(TRAINING)], ratios, rivals, docs / AHEAD)
    write_csv(docs / "composition.csv", study.search.tried)
    (docs / "composition.md").write_text(markdown(study), encoding="utf-8")
    print(docs / "composition.md")


def write_csv(path: Path, tried: Sequence[Tried]) -> None:
    """Write a row a trial: its capacities, and what it set."""
    table = pd.DataFrame([_csv_row(one, tried[0].carried) for one in tried], dtype=object)
    table.drop(columns="system").to_csv(path, index=False, lineterminator="\n")


def _csv_row(one: Tried, workloads: Iterable[str]) -> dict[str, object]:
    carried = {} if one.refused else one.carried
    rates = {f"{name}_rps": f"{carried[name].met_rps:g}" if name in carried else None for name in workloads}
    return {"trial": one.number, **rates, "refused": one.refused, **one.composition.settings}


@program(
    option("--trials", type=int, default=TRIALS, help=f"compositions to try (default: {TRIALS})"),
    option("--seeds", type=int, default=SEEDS, help=f"of the judgement (default: {SEEDS})"),
    JOBS,
    option(
        "--docs",
        type=Path,
        help="folder of composition.md, its table and figures (default: docs, for the default trials and seeds)",
    ),
    option(
        "--publish",
        type=Path,
        help="the system's file (default: in simlora/conf/system, for the default ones too)",
    ),
    about="Search over all policy slots for the composition that carries most on the training workloads of "
    "experiments/cross_table/world.yaml, and judge it on the held-out ones against every published system.",
    epilog=f"It takes one and a half to two hours of two cores. {HELP}",
)
def main(trials: int, seeds: int, jobs: int, docs: Path | None, publish: Path | None) -> None:
    """Search, judge, print and write."""
    whole("--trials", trials, "compositions", least=1)
    whole("--seeds", seeds, "seeds", least=1)
    whole_study = (trials, seeds) == (TRIALS, SEEDS)
    docs = docs or (ROOT / "docs" if whole_study else None)
    publish = publish or (SYSTEM if whole_study else None)
    if docs:
        made((docs / AHEAD).parent, "--docs")
    study = _study(read(), read_space(), trials, range(seeds), jobs)
    _print(study)
    if docs:
        _write(study, docs)
    # Runs are kept only while simlora's files do not change: the same system is not written again.
    if publish and (not publish.exists() or publish.read_text(encoding="utf-8") != study.text):
        publish.write_text(study.text, encoding="utf-8")
        print(publish)
