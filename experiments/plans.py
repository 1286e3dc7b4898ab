"""What is asked of commands that make calibrations by a plan: all that it has or some by name, and where it goes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from experiments.studies.command import option
from simlora.calibrate.calibration_file import CALIBRATIONS
from simlora.core.errors import InputError, nearest

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
