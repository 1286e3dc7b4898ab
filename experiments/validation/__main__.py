"""Judge simlora-validate by servers whose difference is known: `python -m experiments.validation [--write FILE]`.

Each server is a simulated vLLM of which one part of the calibration takes another time. Its result is validated with
the calibration as it is. Printed is which part is blamed, with which factor, and what --fit makes of the host.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import simlora
from experiments.studies.command import option, program
from experiments.validation.server import BUSY, CONFIG, EIGHT, SERVER, served, written
from simlora.calibrate.scaling import CONTEXTS, DECODE, FRONT_END, HOST_TIME, LORA, PROMPTS, scaled

PARTS = (HOST_TIME, DECODE, PROMPTS, CONTEXTS, LORA, FRONT_END)
FACTORS = (0.6, 1.6)


def _judge(part: str, factor: float) -> None:
    with tempfile.TemporaryDirectory() as folder:
        result = served([*SERVER, *BUSY], lambda calibration: scaled(calibration, part, factor))
        path = written(result, Path(folder) / "result.json")
        found = simlora.validate(path, CONFIG, unsaid=EIGHT, out=Path(folder) / "out")
    head = f"{part:<24} {factor:>6.2f} {100 * found.base.error:>6.1f} %"
    if not found.parts:
        print(f"{head}   none: the error is small", flush=True)
        return
    best = found.parts[0]
    others = ", ".join(found.alike) or "-"
    print(f"{head}   {best.name:<24} {best.factor:>6.2f} {100 * best.left:>6.1f} %   {others}", flush=True)


@program(
    option("--write", type=Path, metavar="FILE", help="write the result of the server with a slow host"),
    about=__doc__,
)
def main(write: Path | None) -> None:
    """Print a row for each server, or write the result of the one whose host is slow."""
    if write:
        slow = served([*SERVER, *BUSY], lambda calibration: scaled(calibration, HOST_TIME, 1.6))
        print(f"wrote {written(slow, write)}")
        return
    print(
        f"{'part':<24} {'times':>6} {'error':>8}   {'blamed':<24} {'times':>6} {'left':>8}   not told apart from"
    )
    for part in PARTS:
        for factor in FACTORS:
            _judge(part, factor)
