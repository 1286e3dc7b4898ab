"""The day of Azure Functions 2019 in a few numbers: `python -m experiments.dlora.shape [FILE]`.

Harmonics of 24 hours, by least squares to totals per 40 minutes over three days, relative to their mean:
`maf1_invocations_40min.csv` of dLoRA's artifact. It prints how much each further harmonic explains, and by the
Bayesian information criterion whether it is worth its two coefficients; `simlora.workload.shape.DIURNAL` holds those of
the least criterion. It needs the file.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from experiments.studies.command import option, program
from simlora.core import libm
from simlora.core.errors import InputError
from simlora.workload.shape import DIURNAL, SLOTS_A_DAY, Shape, harmonics, read_shape

TRACES = Path(os.environ.get("SIMLORA_TRACE_DIR", Path(__file__).resolve().parents[3] / "shared" / "traces"))
NAME = "maf1_invocations_40min.csv"
MOST = 6


def fit(shape: Shape, count: int) -> tuple[NDArray[np.float64], float]:
    """Return cosine and sine [count, 2] of each harmonic of a day, and what is left (root mean square, relative)."""
    relative = shape.slots / shape.slots.mean()
    bends = harmonics(len(relative), SLOTS_A_DAY, count)
    columns = np.column_stack([np.ones(len(relative)), bends])
    found, *_ = np.linalg.lstsq(columns, relative, rcond=None)
    left = relative - columns @ found
    return found[1:].reshape(count, 2), float(np.sqrt(np.mean(left**2)))


def criterion(shape: Shape, count: int) -> float:
    """Return the Bayesian information criterion of `count` harmonics; less is better."""
    slots = len(shape.slots)
    return float(slots * libm.log(fit(shape, count)[1] ** 2) + (2 * count + 1) * libm.log(slots))


@program(
    option("file", nargs="?", type=Path, default=TRACES / NAME, help=f"{NAME} of dLoRA's artifact"),
)
def main(file: Path) -> None:
    """Print the harmonics of a file's days."""
    if not file.exists():
        raise InputError(f"there is no {file}; SIMLORA_TRACE_DIR says where {NAME} is")
    shape = read_shape(str(file))
    print("harmonics   left %   criterion   the last one: cosine, sine")
    for count in range(1, MOST + 1):
        bends, left = fit(shape, count)
        last = f"{bends[-1, 0]:+.4f}, {bends[-1, 1]:+.4f}"
        print(f"{count:>9}{100 * left:>9.2f}{criterion(shape, count):>12.1f}   {last}")
    chosen, _ = fit(shape, len(DIURNAL))
    print("DIURNAL =", tuple(tuple(round(float(each), 4) for each in pair) for pair in chosen))
