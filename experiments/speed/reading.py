"""Print what reading a trace file takes: memory and CPU time, for each format and more and more requests.

    python -m experiments.speed.reading [--requests 1000000] [--formats .csv .csv.gz .jsonl .parquet]

Each file, of 200 adapters with no sessions and no blocks, is written first, and read in a process of its own. The CPU
time is that of reading alone; the memory is that of the process, which takes 100 MB before it reads.
"""

from __future__ import annotations

import gzip
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from experiments.studies.command import option, program
from simlora.core.checks import whole
from simlora.core.errors import InputError


def ran(
    what: str, arguments: Sequence[str], heard: Callable[[subprocess.Popen[str]], str], **streams: Any
) -> tuple[dict[str, float], str]:
    """Run Python with these arguments; return its wall and CPU seconds and peak memory, and what was `heard` of it.

    `streams`: where its output goes, as Popen takes it. Raises InputError if it fails, with the last line heard.
    """
    begin_s = time.perf_counter()
    with subprocess.Popen([sys.executable, *arguments], text=True, **streams) as process:
        said = heard(process)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        reason = "".join(f": {line}" for line in said.strip().splitlines()[-1:])
        raise InputError(f"{what} ended with exit status {process.returncode}{reason}")
    return {
        "wall_s": time.perf_counter() - begin_s,
        "cpu_s": usage.ru_utime + usage.ru_stime,
        "peak_memory_bytes": usage.ru_maxrss * 1024.0,
    }, said


def nothing(process: subprocess.Popen[str]) -> str:
    """Hear nothing of what a process says."""
    return ""


def printed(process: subprocess.Popen[str]) -> str:
    """Return all that a process prints into a pipe."""
    assert process.stdout is not None
    return process.stdout.read()


CHILD = """
import sys, time
from simlora.workload.file import File
begin_s = time.process_time()
trace = File(sys.argv[1]).build(0)
print(len(trace), time.process_time() - begin_s)
"""
FORMATS = (".csv", ".csv.gz", ".jsonl", ".parquet")
PIECE = 50_000
"""Rows that are written at a time: this process must stay smaller than the one that is measured."""
HEAD = f"{'requests':>12}{'format':>10}{'file':>12}{'peak memory':>14}{'CPU time':>11}{'a request':>12}"


def pieces(requests: int, rate_rps: float, adapters: int = 200) -> Iterator[pd.DataFrame]:
    """Yield the rows of a trace of our own format, some at a time; lengths and ranks are those of Speed."""
    rng, start_s = np.random.default_rng(0), 0.0
    for begin in range(0, requests, PIECE):
        n = min(PIECE, requests - begin)
        arrival_s = start_s + rng.exponential(1 / rate_rps, n).cumsum()
        adapter, (prompts, outputs) = rng.integers(0, adapters, n), rng.integers(8, 513, (2, n))
        yield pd.DataFrame(
            {
                "arrival_s": arrival_s,
                "adapter": np.char.add("adapter_", adapter.astype(str)).astype(object),
                "rank": np.array([64, 32, 16, 8])[adapter % 4],
                "prompt_tokens": prompts,
                "output_tokens": outputs,
                "max_output_tokens": outputs,
            }
        )
        start_s = arrival_s[-1]


def write(requests: int, path: Path, rate_rps: float = 140.0, adapters: int = 200) -> None:
    """Write a trace, without ever holding all of it."""
    if path.suffix == ".parquet":
        frames = pieces(requests, rate_rps, adapters)
        tables = (pa.Table.from_pandas(piece, preserve_index=False) for piece in frames)
        first = next(tables)
        with pq.ParquetWriter(path, first.schema, compression="zstd") as writer:
            writer.write_table(first)
            for table in tables:
                writer.write_table(table)
        return
    with gzip.open(path, "wt") if path.suffix == ".gz" else path.open("w") as file:
        for number, piece in enumerate(pieces(requests, rate_rps, adapters)):
            if ".jsonl" in path.suffixes:
                piece.to_json(file, orient="records", lines=True, double_precision=15)
            else:
                piece.to_csv(file, index=False, header=number == 0)


def measure(path: Path) -> dict[str, float]:
    """Read a trace in a fresh process: requests, bytes of peak memory, CPU seconds. Raises InputError if that fails."""
    took, said = ran(f"reading {path.name}", ["-c", CHILD, str(path)], printed, stdout=subprocess.PIPE)
    requests, cpu_s = map(float, said.split())
    return {"requests": requests, "peak_memory_bytes": took["peak_memory_bytes"], "cpu_s": cpu_s}


def line(suffix: str, file_bytes: int, found: dict[str, float]) -> str:
    """One line of the table."""
    requests, peak_bytes, cpu_s = (found[key] for key in ("requests", "peak_memory_bytes", "cpu_s"))
    return (
        f"{requests:>12,.0f}{suffix:>10}{file_bytes / 1e6:>9,.1f} MB{peak_bytes / 1e6:>11,.0f} MB"
        f"{cpu_s:>9.2f} s{cpu_s / requests * 1e6:>9.2f} µs"
    )


@program(
    option("--requests", type=int, nargs="+", default=[1_000_000], help="the sizes (default: 10^6)"),
    option("--formats", choices=FORMATS, nargs="+", default=FORMATS, help="the formats (default: all)"),
)
def main(requests: Sequence[int], formats: Sequence[str]) -> None:
    """Print a line for each size and format."""
    for size in requests:
        whole("--requests", size, "requests", least=1)
    print(HEAD, flush=True)
    for size in requests:
        for suffix in formats:
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder, f"trace{suffix}")
                write(size, path)
                print(line(suffix, path.stat().st_size, measure(path)), flush=True)
