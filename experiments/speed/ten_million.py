"""Print what ten million requests take, from a trace file to a page: wall and CPU time and memory, phase by phase.

    python -m experiments.speed.ten_million [--requests 10000000] [--replicas 100] [--from .csv]

The file, of 1,000 adapters at a rate below saturation, is written first. Then the commands `simlora workload=file` of
S-LoRA and `simlora-report` of its folder run, each in a process of its own with a terminal for its progress bar. Ten
million requests take some minutes and 2 GB of disk.
"""

from __future__ import annotations

import json
import os
import pty
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

from experiments.speed.phases import PHASES
from experiments.speed.reading import FORMATS, ran, write
from experiments.speed.scenarios import RATE_RPS
from experiments.studies.command import option, program
from simlora.core.build import BUILD
from simlora.core.checks import whole

ADAPTERS = 1_000
COMMAND, REPORT = "simlora", "simlora-report"
HEAD = f"{'':<18}{'wall time':>12}{'CPU time':>12}{'peak memory':>14}"
Figures = Mapping[str, float]


def on_terminal(module: str, *arguments: str) -> tuple[dict[str, float], str]:
    """Run a module in a process whose stderr is a terminal; return what it took, and what that terminal showed.

    Raises InputError if it fails, with the last line that it said.
    """
    terminal, stderr = pty.openpty()

    def shown(_: subprocess.Popen[str]) -> str:
        os.close(stderr)
        return _read(terminal)

    return ran(module, ["-m", module, *arguments], shown, stdout=subprocess.DEVNULL, stderr=stderr)


def _read(terminal: int) -> str:
    """Return all that a terminal shows until the last process has left it, which Linux reports as an error."""
    parts = []
    with open(terminal, "rb", buffering=0) as stream:
        try:
            while part := stream.read(1 << 16):
                parts.append(part)
        except OSError:
            pass
    return b"".join(parts).decode("utf-8", errors="replace")


def measure(requests: int, replicas: int, suffix: str) -> tuple[dict[str, Figures], dict[str, float], bool]:
    """Return what each phase and command took, the bytes of files, and whether there was a progress bar."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        trace, phases, page = folder / f"trace{suffix}", folder / "phases.json", folder / "comparison.html"
        write(requests, trace, RATE_RPS * replicas, ADAPTERS)
        overrides = [
            "workload=file",
            f"workload.path={trace}",
            f"cluster.replicas={replicas}",
            "router=most_idle",
            "replica.kv_token_budget=14500",
        ]
        command, said = on_terminal(
            "experiments.speed.phases", str(phases), *overrides, f"hydra.run.dir={folder / 'run'}"
        )
        report, _ = on_terminal("simlora.cli.report", str(folder / "run"), "--out", str(page))
        found = json.loads(phases.read_text(encoding="utf-8")) | {COMMAND: command, REPORT: report}
        files = [trace, folder / "run/requests.parquet", folder / "run/report.html", page]
        return (
            found,
            {path.name: float(path.stat().st_size) for path in files},
            "simulating" in said and f"/{requests}" in said,
        )


def line(name: str, found: Figures) -> str:
    """One line of the table."""
    indented = f"  {name}" if name in PHASES else name
    return (
        f"{indented:<18}{found['wall_s']:>10.1f} s{found['cpu_s']:>10.1f} s"
        f"{found['peak_memory_bytes'] / 1e6:>11,.0f} MB"
    )


@program(
    option("--requests", type=int, default=10_000_000, help="rows of the file (default: 10^7)"),
    option("--replicas", type=int, default=100, help="replicas (default: 100)"),
    option("--from", choices=FORMATS, default=".csv", dest="suffix", help="its format (default: .csv)"),
)
def main(requests: int, replicas: int, suffix: str) -> None:
    """Print a line for each phase and command."""
    whole("--requests", requests, "requests", least=1)
    whole("--replicas", replicas, "replicas", least=1)
    print(f"{BUILD}, {requests:,} requests for {ADAPTERS:,} adapters on {replicas:,} replicas", flush=True)
    found, files, bar = measure(requests, replicas, suffix)
    print(HEAD)
    for name in (COMMAND, *PHASES, REPORT):
        print(line(name, found[name]))
    print(f"A progress bar was {'' if bar else 'not '}shown.")
    print(", ".join(f"{name} {size / 1e6:,.1f} MB" for name, size in files.items()))
