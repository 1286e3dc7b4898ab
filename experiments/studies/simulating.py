"""The command of a folder of studies: `python -m experiments FOLDER [STUDY …] [--out DIR]`."""

from __future__ import annotations

import argparse
import textwrap
from collections.abc import Sequence
from pathlib import Path

from experiments.studies import measured
from experiments.studies.command import ended, made
from experiments.studies.draw import draw
from experiments.studies.found import (
    Found,
    complaints,
    differences,
    means,
    of_points,
    table,
    write_csv,
    write_means,
)
from experiments.studies.points import points
from experiments.studies.reading import known
from experiments.studies.study import Study, files, read_all, read_seeds
from simlora.api.cache import HELP
from simlora.core.checks import whole
from simlora.sweeps.statistics import interval

SEEDED = {"what_if": 5}
"""Folders whose points are run with as many seeds as is asked for, and by default; what is printed has its interval."""


def main(folder: Path, arguments: Sequence[str] | None = None) -> int:
    """Simulate and draw a folder's studies; 0 when done, 2 for bad input, 130 when interrupted."""
    name, out = folder.name, Path("outputs") / folder.name
    names = ", ".join(sorted(path.stem for path in files(folder))[:2])
    parser = argparse.ArgumentParser(
        prog=f"python -m experiments {name}",
        description=f"Simulate the studies of {name}, and draw them beside the published points.",
        epilog=HELP,
    )
    parser.add_argument("studies", nargs="*", metavar="STUDY", help=f"{names}, … (default: all)")
    parser.add_argument("--out", type=Path, default=out, help=f"where PNG and CSV go (default: {out})")
    parser.add_argument("--jobs", type=int, default=-1, help="processes (default: one a core)")
    if name in SEEDED:
        least = SEEDED[name]
        parser.add_argument("--seeds", type=int, default=least, help=f"runs of each point (default: {least})")
    options = parser.parse_args(arguments)
    count = vars(options).get("seeds")
    return ended(lambda: _run(folder, options.studies, options.out, options.jobs, count))


def _run(folder: Path, names: Sequence[str], out: Path, jobs: int, count: int | None) -> None:
    every = read_all(folder)
    studies = [every[known(name, every, "study")] for name in names or every]
    seeds = read_seeds(folder) if count is None else range(whole("--seeds", count, "runs", least=1))
    made(out)
    beside = measured.beside(folder, studies)
    for path in beside.missing:
        print(f"skipped the measured points: there is no {path}; set SIMLORA_MEASURED_DIR")
    found = of_points(
        [point for study in studies for point in points(study)],
        seeds,
        jobs,
        lambda point: beside.published(every[point.study], point),
    )
    for study in studies:
        own, path = [one for one in found if one.point.study == study.name], out / f"{study.name}.png"
        if count is None:
            draw(study, own, path, targets_s=beside.targets_s)
            write_csv(path.with_suffix(".csv"), study, own, bool(seeds))
        else:
            draw(study, own, path, ends=interval)
            write_means(path.with_suffix(".csv"), study, means(study, own))
        print(_line(study, own, path.with_suffix(""), len(seeds), count is not None))
        _tell(study, own, count is not None)


def _line(study: Study, own: Sequence[Found], path: Path, seeds: int, tables: bool) -> str:
    """Return what is said of a study first: below tables of others there is a blank line."""
    seconds = sum(outcome.seconds for one in own for outcome in one.outcomes)
    took = f" ({seconds:.0f} s of simulating)" if seeds and not tables else ""
    return ("\n" if tables else "") + f"{study.name}: {study.title} -> {path}.png, .csv{took}"


def _tell(study: Study, own: Sequence[Found], tables: bool) -> None:
    """Print the note of a study, what was not simulated of it, and the tables of its means."""
    for line in textwrap.wrap(study.note, 106):
        print(f"  {line}")
    for complaint in complaints(own):
        print(f"  not simulated: {complaint}")
    for metric in study.metrics if tables else ():
        print(table(study, means(study, own), metric))
        if study.x.categories and metric in study.logarithmic:
            apart = differences(own, metric)
            print(table(study, apart, metric, ", above the lowest of the line with the same requests"))
