"""Draw dLoRA's figures: `python -m experiments.dlora [figure_10 what_if_slower …] [--out DIR]`."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from pathlib import Path

from experiments.dlora import measured
from experiments.dlora.paper import FOLDER, SEEDS, TARGETS_S
from experiments.studies.command import JOBS, chosen, into, option, program
from experiments.studies.draw_several import draw
from experiments.studies.several import Several, of_study, write_csv
from experiments.studies.study import read_all
from simlora.api.cache import HELP


def _complain(found: Sequence[Several]) -> None:
    for reason in dict.fromkeys(one.complaint for one in found if one.complaint):
        print(f"  not simulated: {reason}")


@program(
    option("studies", nargs="*", metavar="STUDY", help="figure_10, what_if_slower, … (default: all)"),
    into("outputs/dlora"),
    JOBS,
    about=f"Simulate the figures of dLoRA, each with {len(SEEDS)} seeds, and draw them beside what its "
    "authors measured.",
    epilog=HELP,
)
def main(studies: Sequence[str], folder: Path, jobs: int) -> None:
    """Simulate and draw dLoRA's studies."""
    drawn, theirs = chosen(read_all(FOLDER), studies), measured.read()
    if theirs is None:
        print(f"skipped the measured points: there is no {measured.path()}; set SIMLORA_MEASURED_DIR")
    for study in drawn:
        found = of_study(study, SEEDS, jobs, theirs.of if theirs else None)
        draw(study, found, folder / f"{study.name}.png", targets_s=TARGETS_S)
        write_csv(folder / f"{study.name}.csv", study, found)
        seconds = sum(outcome.seconds for one in found for outcome in one.outcomes)
        print(
            f"{study.name}: {study.title} -> {folder / study.name}.png, .csv ({seconds:.0f} s of simulating)"
        )
        for line in textwrap.wrap(study.note, 106):
            print(f"  {line}")
        _complain(found)
