"""What-ifs that no paper could run: `python -m experiments.what_if [crossing tenants …] [--seeds 5] [--out DIR]`."""

from __future__ import annotations

import argparse
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path

from experiments.studies.command import chosen, ended, made
from experiments.studies.points import points
from experiments.studies.several import of_points
from experiments.studies.study import Study, read_all
from experiments.what_if.drawing import draw
from experiments.what_if.gathered import differences, gather, table, write_csv
from simlora.api.cache import HELP
from simlora.core.checks import whole

FOLDER = Path(__file__).parent


def main(arguments: Sequence[str] | None = None) -> int:
    """Simulate, draw and print what-ifs; 0 when done, 2 for bad input, 130 when interrupted."""
    return ended(lambda: _run(arguments))


def _run(arguments: Sequence[str] | None) -> None:
    studies = read_all(FOLDER)
    parser = argparse.ArgumentParser(
        prog="python -m experiments.what_if",
        description="Simulate what no paper could run, over several seeds; draw it, and print it with intervals.",
        epilog="\n".join(
            ["studies:", *(f"  {name:<13}{study.title}" for name, study in studies.items()), "", HELP]
        ),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("studies", nargs="*", metavar="STUDY", help="of those below (default: all)")
    parser.add_argument("--seeds", type=int, default=5, help="runs of each point (default: 5)")
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("outputs") / "what_if",
        help="where PNG and CSV go (default: outputs/what_if)",
    )
    parser.add_argument("--jobs", type=int, default=-1, help="processes (default: one a core)")
    options = parser.parse_args(arguments)
    whole("--seeds", options.seeds, "runs", least=1)
    _answer(chosen(studies, options.studies), range(options.seeds), made(options.out), options.jobs)


def _answer(studies: Sequence[Study], seeds: Sequence[int], out: Path, jobs: int) -> None:
    simulated = of_points([point for study in studies for point in points(study)], seeds, jobs)
    for study in studies:
        own = [one for one in simulated if one.point.study == study.name]
        for one in own:
            for reason in dict.fromkeys(outcome.reason for outcome in one.outcomes if outcome.reason):
                print(f"  not simulated: {one.point.series}, {one.point.x}: {reason}")
        found = gather(study, own)
        draw(study, found, out / f"{study.name}.png")
        write_csv(out / f"{study.name}.csv", study, found)
        print(f"\n{study.name}: {study.title} -> {out / study.name}.png, .csv")
        for line in textwrap.wrap(study.note, 106):
            print(f"  {line}")
        for metric in study.metrics:
            print(table(study, found, metric))
            if study.x.categories and metric in study.logarithmic:
                apart = differences(study, own, metric)
                print(table(study, apart, metric, ", above the lowest of the line with the same requests"))


if __name__ == "__main__":
    sys.exit(main())
