"""Measure the simulator's speed: `python -m experiments.speed [--quick] [--json OUT]`.

Where simlora is compiled, each scenario also runs interpreted. Beside each runs what SimPy does bare.
"""

from __future__ import annotations

import json
import multiprocessing
import os
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from experiments.speed.scenarios import PAIRS, SCENARIOS, Speed, measure, simpy_timeouts_per_s
from experiments.studies.command import option, program, writable
from simlora.core.build import BUILD, INTERPRETED

SPAWN = multiprocessing.get_context("spawn")
BUILDS = ("compiled", "interpreted") if BUILD == "compiled" else (BUILD,)
FAST_SIMPY = 1.5e6
"""Timeouts a second of SimPy on the machine that the targets are for."""
HEAD = (
    f"{'scenario':<26}{'requests':>10}{'build':>13}{'requests/s':>12}{'of SimPy':>10}{'target':>8}"
    f"{'token-steps/s':>15}{'events/req':>12}{'memory':>10}{'SimPy timeouts/s':>18}"
)


def run(speed: Speed, repeats: int = 1, build: str = BUILD) -> dict[str, Any]:
    """Measure in fresh processes, one after the other; keep the median run. SimPy alone runs beside each."""
    found = []
    for _ in range(repeats):
        with _environment(build), ProcessPoolExecutor(1, mp_context=SPAWN) as fresh:
            figures = fresh.submit(measure, speed).result()
        found.append({**figures, "simpy_timeouts_per_s": simpy_timeouts_per_s()})
    middle = sorted(found, key=lambda figures: figures["wall_s"])[len(found) // 2]
    return {
        "scenario": speed.name,
        "build": build,
        "replicas": speed.replicas,
        "requests": speed.requests,
        "fast_forward": speed.fast_forward,
        "target_requests_per_s": speed.target_rps,
        **middle,
    }


def line(row: dict[str, Any]) -> str:
    """One line of the table."""
    target = f"{row['target_requests_per_s'] / FAST_SIMPY:.1%}" if row["target_requests_per_s"] else ""
    return (
        f"{row['scenario']:<26}{row['requests']:>10,}{row['build']:>13}{row['requests_per_s']:>12,.0f}"
        f"{row['requests_per_s'] / row['simpy_timeouts_per_s']:>10.2%}{target:>8}"
        f"{row['token_steps_per_s']:>15,.0f}{row['events_per_request']:>12.2f}"
        f"{row['peak_memory_bytes'] / 1e6:>7,.0f} MB{row['simpy_timeouts_per_s']:>18,.0f}"
    )


@contextmanager
def _environment(build: str) -> Iterator[None]:
    """Let processes that are started inside use a build."""
    before = os.environ.get(INTERPRETED, "")
    os.environ[INTERPRETED] = "" if build == "compiled" else "1"
    try:
        yield
    finally:
        os.environ[INTERPRETED] = before


def ratio(above: Speed, below: Speed, turns: int = 3) -> float:
    """Measure the two in turn and return the median ratio of their requests/s."""
    found = [run(above)["requests_per_s"] / run(below)["requests_per_s"] for _ in range(turns)]
    return sorted(found)[turns // 2]


@program(
    option("--quick", action="store_true", help="leave out the million-request scenarios"),
    option("--json", type=Path, metavar="OUT", dest="out", help="write the figures as JSON"),
)
def main(quick: bool, out: Path | None) -> None:
    """Time all scenarios, each in a process of its own."""
    if out:
        writable(out, "--json")
    chosen = [s for s in SCENARIOS if not quick or s.requests < 1_000_000]
    print(HEAD, flush=True)
    rows = []
    for speed in chosen:
        for build in BUILDS:
            if build == "compiled" or speed.requests < 1_000_000 or len(BUILDS) == 1:
                rows.append(run(speed, repeats=3 if speed.requests < 100_000 else 1, build=build))
                print(line(rows[-1]), flush=True)
    print("\nRatios, measured in turn:", flush=True)
    found = {}
    for name, (above, below) in PAIRS.items():
        found[name] = ratio(above, below)
        print(f"{found[name]:8.2f}  {name}", flush=True)
    if out:
        out.write_text(json.dumps({"scenarios": rows, "ratios": found}, indent=1) + "\n", encoding="utf-8")
