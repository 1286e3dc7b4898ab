"""Print how long it takes from the command line to the first simulated event: `python -m experiments.speed.start`.

The command is `simlora` with its defaults, in a fresh process each time; the fastest and the median of the turns are
printed, in seconds of wall and of CPU time.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from experiments.studies.command import option, program
from simlora.core.build import BUILD
from simlora.core.checks import whole

CHILD = """
import sys, time
import simlora.cli
def first_event(*given):
    print(time.time(), time.process_time())
    raise SystemExit
from simlora.engine.cluster import simulation
simulation.Simulation.run = first_event
simlora.cli.main([f"hydra.run.dir={sys.argv[1]}"])
"""


def start_s(folder: Path) -> tuple[float, float]:
    """Return the seconds, of wall and of CPU time, that a fresh process takes until the simulation begins."""
    started = time.time()
    found = subprocess.run([sys.executable, "-c", CHILD, str(folder)], capture_output=True, text=True)
    wall, cpu_s = found.stdout.split()[-2:]
    return float(wall) - started, float(cpu_s)


@program(option("--turns", type=int, default=5, help="how many starts (default: 5)"))
def main(turns: int) -> None:
    """Time some starts."""
    whole("--turns", turns, "turns", least=1)
    with tempfile.TemporaryDirectory() as folder:
        found = [start_s(Path(folder)) for _ in range(turns)]
    for name, seconds in zip(("wall", "CPU"), zip(*found, strict=True), strict=True):
        print(
            f"{BUILD}: first event after {min(seconds):.2f} s of {name} time, median {median(seconds):.2f} s"
        )
