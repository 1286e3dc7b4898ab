"""Print what whole runs of more and more requests take: memory, CPU time, and what a request costs.

    python -m experiments.speed.sizes [--requests 10000 100000 1000000 10000000] [--replicas 100] [--from .csv]

Each is the command `simlora`, with its report and its files, of S-LoRA as in experiments/speed/scenarios.py, in a
process of its own. Ten million requests take four minutes and 1 GB of disk. What a request costs is the CPU time of the
simulation, without start, summary and report, over the requests. With --from they are read from a trace file, which is
written first.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from experiments.speed.reading import FORMATS, nothing, ran, write
from experiments.speed.scenarios import RATE_RPS, Speed
from experiments.studies.command import option, program
from simlora.core.build import BUILD
from simlora.core.checks import whole

COMMAND = """
import sys, time
time.perf_counter = time.process_time  # so that summary.json has CPU time, too
from simlora.cli import main
sys.exit(main())
"""
SIZES = (10_000, 100_000, 1_000_000, 10_000_000)
HEAD = f"{'requests':>12}{'peak memory':>14}{'CPU time':>12}{'a request':>12}{'requests.parquet':>19}"


def measure(requests: int, replicas: int, suffix: str | None = None) -> dict[str, float]:
    """Run the command once: bytes of peak memory and of its requests.parquet, CPU seconds, seconds of the simulation.

    `suffix` is the format of the trace file that it reads; None: it draws its requests. Raises InputError if it fails.
    """
    overrides = Speed("", replicas, requests).overrides()
    with tempfile.TemporaryDirectory() as folder:
        if suffix is not None:
            path = Path(folder, f"trace{suffix}")
            write(requests, path, RATE_RPS * replicas)
            overrides = [each for each in overrides if not each.startswith("workload")]
            overrides += ["workload=file", f"workload.path={path}"]
        command = ["-c", COMMAND, *overrides, "progress=false", f"hydra.run.dir={folder}"]
        took, _ = ran(f"a run of {requests:,} requests", command, nothing, stdout=subprocess.DEVNULL)
        summary = json.loads(Path(folder, "summary.json").read_text(encoding="utf-8"))
        return {
            "peak_memory_bytes": took["peak_memory_bytes"],
            "cpu_s": took["cpu_s"],
            "simulation_s": summary["simulation"]["wall_s"],
            "file_bytes": float(Path(folder, "requests.parquet").stat().st_size),
        }


def line(requests: int, found: dict[str, float]) -> str:
    """One line of the table."""
    return (
        f"{requests:>12,}{found['peak_memory_bytes'] / 1e6:>11,.0f} MB{found['cpu_s']:>10.1f} s"
        f"{found['simulation_s'] / requests * 1e6:>9.1f} µs{found['file_bytes'] / 1e6:>16,.1f} MB"
    )


@program(
    option("--requests", type=int, nargs="+", default=SIZES, help="the sizes (default: 10^4 to 10^7)"),
    option("--replicas", type=int, default=100, help="replicas of each run (default: 100)"),
    option("--from", choices=FORMATS, dest="suffix", help="read the requests from such a file"),
)
def main(requests: Sequence[int], replicas: int, suffix: str | None) -> None:
    """Print a line for each size."""
    whole("--replicas", replicas, "replicas", least=1)
    for size in requests:
        whole("--requests", size, "requests", least=1)
    print(f"{BUILD}\n{HEAD}", flush=True)
    for size in requests:
        print(line(size, measure(size, replicas, suffix)), flush=True)
