"""Fits calibrations to published profiles: `python -m experiments.profiles [NAME ...] [--out FOLDER]`.

Without names it makes everything in `plan.yaml`. It prints a line a calibration: mean absolute errors of the fitted
points, and the mean and the worst of those that were held out, every fifth.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from experiments.profiles.build import Built, as_yaml, attention, build, entries
from experiments.profiles.sums import Fit
from experiments.studies.command import OUT, option, planned, program
from experiments.studies.reading import measured_dir
from simlora.calibrate.calibration_file import save
from simlora.core.errors import InputError

PARTS = ("prefill", "decode", "collectives")
HEAD = f"{'':<39}" + "".join(f"{part:^27}" for part in PARTS)
UNITS = f"{'calibration':<29}{'kind':<10}" + f"{'points':>9}{'fit %':>6}{'held':>6}{'worst':>6}" * len(PARTS)


def line(built: Built) -> str:
    """Return the printed line of one calibration; a part that it does not have is left blank."""
    kind = "published" if built.entry.measured else "derived"
    cells = [cell(built.fits[part]) if part in built.fits else "" for part in PARTS]
    return f"{built.entry.name:<29}{kind:<10}{''.join(cells)}"


def cell(one: Fit) -> str:
    """Return points, and in per cent the mean error of the fitted, the mean and the worst of the held-out ones."""
    errors = (100 * error for error in (one.mape, one.held_out_mape, one.held_out_worst))
    return f"{one.points:>9}" + "".join(f"{error:>6.1f}" for error in errors)


def write(name: str, profiles: Path, folder: Path) -> Built:
    """Make one calibration, check that it reads, and write its file."""
    built = build(entries()[name], profiles)
    save(folder / f"{name}.yaml", as_yaml(built))
    return built


@program(
    option("names", nargs="*", metavar="NAME", help="calibrations to make (default: all)"),
    option("--profiles", type=Path, help="published profiles"),
    OUT,
)
def main(names: Sequence[str], profiles: Path | None, folder: Path) -> None:
    """Make the named calibrations, or all of the plan."""
    chosen, profiles = planned(names, entries()), profiles or measured_dir() / "profiles"
    if not profiles.is_dir():
        raise InputError(f"there are no profiles in {profiles}; SIMLORA_MEASURED_DIR says where they are")
    print(HEAD, UNITS, sep="\n")
    for entry in chosen:
        print(line(write(entry.name, profiles, folder)), flush=True)
    beside = attention(profiles)
    print(f"{f'attention of {beside.source.name}':<39}{cell(beside.prefill)}{cell(beside.decode)}")
