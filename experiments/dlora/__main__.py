"""Draw dLoRA's figures: `python -m experiments.dlora [figure_10 what_if_slower …] [--out DIR]`."""

from __future__ import annotations

import argparse
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path

from experiments.dlora import measured
from experiments.dlora.paper import FOLDER, SEEDS, TARGETS_S
from experiments.studies.command import chosen, ended, made
from experiments.studies.draw_several import draw
from experiments.studies.several import Several, of_study, write_csv
from experiments.studies.study import Study, read_all
from simlora.api.cache import HELP


def main(arguments: Sequence[str] | None = None) -> int:
    """Simulate and draw dLoRA's studies; 0 when done, 2 for bad input, 130 when interrupted."""
    parser = argparse.ArgumentParser(
        prog="python -m experiments.dlora",
        description=f"Simulate the figures of dLoRA, each with {len(SEEDS)} seeds, and draw them beside what its "
        "authors measured.",
        epilog=HELP,
    )
    parser.add_argument(
        "studies", nargs="*", metavar="STUDY", help="figure_10, what_if_slower, … (default: all)"
    )
    parser.add_argument("--out", type=Path, default=Path("outputs/dlora"), help="where PNG and CSV go")
    parser.add_argument("--jobs", type=int, default=-1, help="processes (default: one a core)")
    options = parser.parse_args(arguments)
    return ended(lambda: _draw_all(chosen(read_all(FOLDER), options.studies), options.out, options.jobs))


def _draw_all(studies: Sequence[Study], out: Path, jobs: int) -> None:
    theirs = measured.read()
    if theirs is None:
        print(f"skipped the measured points: there is no {measured.path()}; set SIMLORA_MEASURED_DIR")
    made(out)
    for study in studies:
        found = of_study(study, SEEDS, jobs, theirs.of if theirs else None)
        draw(study, found, out / f"{study.name}.png", targets_s=TARGETS_S)
        write_csv(out / f"{study.name}.csv", study, found)
        seconds = sum(outcome.seconds for one in found for outcome in one.outcomes)
        print(f"{study.name}: {study.title} -> {out / study.name}.png, .csv ({seconds:.0f} s of simulating)")
        for line in textwrap.wrap(study.note, 106):
            print(f"  {line}")
        _complain(found)


def _complain(found: Sequence[Several]) -> None:
    for reason in dict.fromkeys(one.complaint for one in found if one.complaint):
        print(f"  not simulated: {reason}")


if __name__ == "__main__":
    sys.exit(main())
