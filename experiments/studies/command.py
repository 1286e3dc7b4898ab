"""The command that every paper's folder has: `python -m experiments.<paper> [study …] [--out DIR]`."""

from __future__ import annotations

import argparse
import sys
import textwrap
from collections.abc import Callable, Sequence
from pathlib import Path

from experiments.studies import measured
from experiments.studies.draw import draw
from experiments.studies.gathered import complaints, gather, write_csv
from experiments.studies.points import points
from experiments.studies.reading import known
from experiments.studies.running import run_all
from experiments.studies.study import Study, read_all
from simlora.api.cache import HELP
from simlora.core.errors import InputError

DONE, BAD_INPUT, INTERRUPTED = 0, 2, 130


def main(folder: Path, arguments: Sequence[str] | None = None) -> int:
    """Simulate and draw a paper's studies; 0 when done, 2 for bad input, 130 when interrupted."""
    paper = folder.name
    parser = argparse.ArgumentParser(
        prog=f"python -m experiments.{paper}",
        description=f"Simulate the figures and tables of {paper}, and draw them beside the published points.",
        epilog=HELP,
    )
    names = ", ".join(sorted(path.stem for path in folder.glob("*.yaml") if path.stem != "claims")[:2])
    parser.add_argument("studies", nargs="*", metavar="STUDY", help=f"{names}, … (default: all)")
    parser.add_argument("--out", type=Path, help=f"where PNG and CSV go (default: outputs/{paper})")
    parser.add_argument("--jobs", type=int, default=-1, help="processes (default: one a core)")
    options = parser.parse_args(arguments)
    out = options.out or Path("outputs") / paper
    return ended(lambda: _draw_all(chosen(read_all(folder), options.studies), out, options.jobs))


def into(
    folder: str, module: str, about: str | None, does: Callable[[Path], None], arguments: Sequence[str] | None
) -> int:
    """Run a command whose one option is the folder that it writes into; `about` is the module's docstring."""
    parser = argparse.ArgumentParser(prog=f"python -m {module}", description=(about or "").split("\n\n")[0])
    parser.add_argument(
        "--out", type=Path, default=Path(folder), help=f"where what it writes goes (default: {folder})"
    )
    options = parser.parse_args(arguments)
    return ended(lambda: does(made(options.out)))


def ended(does: Callable[[], None]) -> int:
    """Do what a command is for; return its exit status, having said in a sentence what went wrong."""
    try:
        does()
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        return BAD_INPUT
    except KeyboardInterrupt:
        print("interrupted; the runs that were finished are kept", file=sys.stderr)
        return INTERRUPTED
    return DONE


def made(out: Path, option: str = "--out") -> Path:
    """Return the folder that an option names, which is there now. Raises InputError if it cannot be."""
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{option} {out} cannot be made: {error.strerror}") from None
    return out


def chosen(studies: dict[str, Study], names: Sequence[str]) -> list[Study]:
    """Return the studies of these names, all if there are none. Raises InputError with the nearest ones."""
    return [studies[known(name, studies, "study")] for name in names] or list(studies.values())


def _draw_all(studies: Sequence[Study], out: Path, jobs: int) -> None:
    rows = measured.rows()
    for path in measured.missing(studies):
        print(f"without measured points: there is no {path}; set SIMLORA_MEASURED_DIR")
    made(out)
    outcomes = run_all([point for study in studies for point in points(study)], jobs)
    for study in studies:
        gathered = gather(study, outcomes, rows)
        draw(study, gathered, out / f"{study.name}.png")
        write_csv(out / f"{study.name}.csv", study, gathered)
        print(f"{study.name}: {study.title} -> {out / study.name}.png, .csv")
        for line in textwrap.wrap(study.note, 106):
            print(f"  {line}")
        for complaint in complaints(gathered):
            print(f"  not simulated: {complaint}")
