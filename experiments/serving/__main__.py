"""Measure what load simlora-serve holds: `python -m experiments.serving [--seconds S] [--rates R,R,…] [key=value …]`.

Starts `simlora-serve` beside a client, a process each, and prints a row a rate: requests and streamed tokens a second,
the server's drift (wall seconds from when a token is due until it is handed to its connection), the share of a core
that the server took, and the share that the host of a virtual machine took from that core meanwhile. The client is on
another core. First it says how late the machine itself is: a process that does nothing but look at the clock is stopped
now and then, by others or by the host.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from prometheus_client.parser import text_string_to_metric_families

from experiments.serving.load import ADAPTERS, load, run
from experiments.studies.command import option, program

CONFIGURATION = (
    *("system=vllm", "gpu=h100_64g", "model=llama_3_1_8b", "workload=per_adapter", "replica.max_loras=50"),
    *("cluster.replicas=16", "replica.adapter_tokenizers=false", "report=false"),
)
HEADER = (
    "offered",
    "requests/s",
    "tokens/s",
    "failed",
    "drift p50",
    "p99",
    "most",
    "seconds behind",
    "server's core",
    "stolen",
)


@contextmanager
def serving(overrides: list[str]) -> Iterator[tuple[str, int]]:
    """Serve a configuration; yield its address and its process."""
    command = [sys.executable, "-m", "simlora.cli.serve", "--port", "0", *overrides]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    lines = [process.stdout.readline() for _ in range(3)]
    found = re.search(r"http://[0-9.:]+", lines[1])
    assert found is not None, lines
    try:
        yield found[0], process.pid
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate()


def stalled_s(core: int, seconds: float = 10.0) -> float:
    """Return by how much 1 % of the moments are seen late by a process that only looks at the clock of a core."""
    os.sched_setaffinity(0, [core])
    last_s = began_s = time.perf_counter()
    gaps_s: list[float] = []
    while last_s < began_s + seconds:
        now_s = time.perf_counter()
        if now_s - last_s > 1e-4:
            gaps_s.append(now_s - last_s)
        last_s = now_s
    gaps = np.array(gaps_s)
    lates_s = np.linspace(0.0, gaps.max(initial=0.0), 1001)
    # A moment of a gap is seen at its end: later than x are all but the last x of it.
    later = np.clip(gaps[:, np.newaxis] - lates_s, 0.0, None).sum(axis=0)
    return float(lates_s[np.argmax(later <= 0.01 * seconds)])


def stolen_s(core: int) -> float:
    """Return the seconds that the host has taken from a core since the machine started; 0 where Linux does not say."""
    lines = Path("/proc/stat").read_text().splitlines() if Path("/proc/stat").exists() else []
    ticks = [line.split()[8] for line in lines if line.startswith(f"cpu{core} ")]
    return int(ticks[0]) / os.sysconf("SC_CLK_TCK") if ticks else 0.0


def metrics(address: str) -> dict[tuple[str, str], float]:
    """Return the samples of a server, by name and bucket."""
    with urllib.request.urlopen(f"{address}/metrics") as response:
        text = response.read().decode()
    families = text_string_to_metric_families(text)
    return {
        (each.name, each.labels.get("le", "")): each.value for family in families for each in family.samples
    }


def quantiles_s(before: dict[tuple[str, str], float], after: dict[tuple[str, str], float]) -> list[float]:
    """Return the bounds of the buckets in which the median, the 99th percentile and the largest drift lie."""
    name = "simlora:drift_seconds_bucket"
    buckets = sorted(
        (float(bound), value - before[key])
        for key, value in after.items()
        for named, bound in [key]
        if named == name
    )
    total = buckets[-1][1]
    return [next(bound for bound, count in buckets if count >= share * total) for share in (0.5, 0.99, 1.0)]


def row(address: str, rate_rps: float, tokens: int, seconds: float, core: int) -> tuple[str, ...]:
    """Return what one rate gives; the server is on that core."""
    before, before_s = metrics(address), stolen_s(core)
    counted = run(load(address, rate_rps, tokens, ADAPTERS, int(rate_rps * seconds)))
    after, taken_s = metrics(address), stolen_s(core) - before_s
    median_s, p99_s, most_s = quantiles_s(before, after)

    def more(name: str) -> float:
        return after[name, ""] - before[name, ""]

    return (
        f"{rate_rps:g}/s",
        f"{counted.answered / counted.seconds:,.0f}",
        f"{counted.tokens / counted.seconds:,.0f}",
        str(counted.failed),
        f"<= {1000 * median_s:g} ms",
        f"<= {1000 * p99_s:g} ms",
        f"<= {1000 * most_s:g} ms",
        f"{more('simlora:seconds_behind_total'):.0f}",
        f"{more('process_cpu_seconds_total') / counted.seconds:.0%}",
        f"{taken_s / counted.seconds:.0%}",
    )


@program(
    option("--seconds", type=float, default=20.0),
    option("--rates", default="100,250,500,750,1000"),
    option("--tokens", type=int, default=40),
    option("overrides", nargs="*"),
    about=__doc__,
)
def main(seconds: float, rates: str, tokens: int, overrides: list[str]) -> None:
    """Measure and print."""
    cores = sorted(os.sched_getaffinity(0))
    late_ms = 1000 * stalled_s(cores[0])
    with serving([*CONFIGURATION, *overrides]) as (address, pid):
        os.sched_setaffinity(pid, cores[:1])
        os.sched_setaffinity(0, cores[1:] or cores)
        with urllib.request.urlopen(f"{address}/version") as response:
            print(
                f"{response.read().decode()} {len(cores)} cores, load average {os.getloadavg()[0]:.1f}; "
                f"the machine itself is {late_ms:.1f} ms late for 1 % of the time"
            )
        run(load(address, 20, tokens, ADAPTERS, 100))
        print(*(f"{name:>14}" for name in HEADER))
        for rate_rps in map(float, rates.split(",")):
            found = row(address, rate_rps, tokens, seconds, cores[0])
            print(*(f"{cell:>14}" for cell in found), flush=True)
