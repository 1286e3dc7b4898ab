"""What commands have in common: options, folders to write into, plans to make all or some of, and how they end."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, TypeVar

from simlora.calibrate.calibration_file import CALIBRATIONS
from simlora.cli.guarded import DONE, guarded
from simlora.core.errors import InputError, nearest

PROJECT = Path(__file__).resolve().parents[2]
Option = tuple[tuple[str, ...], dict[str, Any]]
Main = Callable[..., int]
"""Takes the arguments of a command line, or those of the process, and returns the exit status."""


def option(*names: str, **how: Any) -> Option:
    """Return an option of a command, as `add_argument` takes it."""
    return names, how


def into(folder: str | Path) -> Option:
    """Return the option `--out`, the folder that a command writes into; it is there before the command begins."""
    about = f"where what it writes goes (default: {shown(folder)})"
    return option("--out", type=Path, default=Path(folder), dest="folder", metavar="OUT", help=about)


JOBS = option("--jobs", type=int, default=-1, help="processes (default: one a core)")


def command(
    *options: Option, about: str | None = None, epilog: str | None = None
) -> Callable[[Callable[..., int | None]], Main]:
    """Return what makes a function the command of its module, which gets each option by its name.

    `about` is what `--help` says, or else the first paragraph of the module's docstring. The function may return the
    exit status of what it found.
    """

    def made_of(does: Callable[..., int | None]) -> Main:
        def main(arguments: Sequence[str] | None = None) -> int:
            module = sys.modules[does.__module__]
            assert module.__spec__ is not None
            name = module.__spec__.name.removesuffix(".__main__")
            said = about or (module.__doc__ or "").split("\n\n")[0]
            parser = argparse.ArgumentParser(prog=f"python -m {name}", description=said, epilog=epilog)
            for names, how in options:
                parser.add_argument(*names, **how)
            return ended(lambda: does(**_ready(vars(parser.parse_args(arguments)))))

        return main

    return made_of


def program(*options: Option, **how: Any) -> Callable[[Callable[..., int | None]], Main]:
    """Return the same, which also runs where the module is the program: so it stands last in its module."""

    def made_of(does: Callable[..., int | None]) -> Main:
        main = command(*options, **how)(does)
        if does.__module__ == "__main__":
            sys.exit(main())
        return main

    return made_of


def _ready(given: dict[str, Any]) -> dict[str, Any]:
    return given | {"folder": made(given["folder"])} if "folder" in given else given


def shown(folder: str | Path) -> str:
    """Return a folder as a help text has it: from the project on, so that it is the same wherever that lies."""
    path = Path(folder)
    return str(path.relative_to(PROJECT) if path.is_relative_to(PROJECT) else path)


def ended(does: Callable[[], int | None]) -> int:
    """Do what a command is for; return its exit status, having said in a sentence what went wrong.

    0 when done, or what it returns; 2 for bad input, 130 when interrupted: by Ctrl-C, or by SIGTERM as batch systems
    send it.
    """
    return guarded(lambda: does() or DONE, "interrupted; the runs that were finished are kept")


def made(out: Path, option: str = "--out") -> Path:
    """Return the folder that an option names, which is there now and can be written.

    Raises InputError if it cannot be made or written.
    """
    try:
        out.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=out):
            pass
    except OSError as error:
        done = "written" if out.is_dir() else "made"
        raise InputError(f"{option} {out} cannot be {done}: {error.strerror}") from None
    return out


def writable(path: Path, option: str) -> Path:
    """Return the file that an option names, whose folder is there and can be written. Raises InputError if not."""
    try:
        with TemporaryFile(dir=path.parent):
            pass
    except OSError as error:
        raise InputError(f"{option} {path} cannot be written: {error.strerror}") from None
    if path.is_dir():
        raise InputError(f"{option} {path} cannot be written: it is a folder")
    return path


T = TypeVar("T")
OUT = option(
    "--out", type=Path, default=CALIBRATIONS, dest="folder", metavar="OUT", help="folder to write to"
)


def planned(names: Sequence[str], plans: Mapping[str, T]) -> list[T]:
    """Return what is planned under these names, all if there are none. Raises InputError with the nearest names."""
    for name in names:
        if name not in plans:
            raise InputError(f"there is no plan for {name!r}; {nearest(name, plans)}")
    return [plans[name] for name in names or plans]
