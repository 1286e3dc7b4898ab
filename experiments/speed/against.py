"""Compare the speed with an older checkout.

    python -m experiments.speed.against OLD_CHECKOUT [--turns 3] [--only TEXT]

Each scenario below a million requests runs in turn with both checkouts, in fresh processes. A ratio is the old CPU
seconds of the simulation alone over the new ones. It is printed of the fastest runs, which other work on the machine
slowed least, and as the lowest and the highest of the turns.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from experiments.same_bytes.checkouts import PROJECT, checked, run_in
from experiments.speed.scenarios import SCENARIOS
from experiments.studies.command import option, program
from simlora.core.checks import whole

PYTHON = (sys.executable, "-c")
CHILD = """
import json, sys, time
time.perf_counter = time.process_time
from experiments.speed.scenarios import SCENARIOS, measure
speed, = (each for each in SCENARIOS if [each.name, each.requests] == json.loads(sys.argv[1]))
print(json.dumps(measure(speed)["wall_s"]))
"""
NAMES = """
import json
from experiments.speed.scenarios import SCENARIOS
print(json.dumps([[speed.name, speed.requests] for speed in SCENARIOS]))
"""
LARGE = 1_000_000


def scenarios(checkout: Path) -> list[list[Any]]:
    """Return the name and requests of each scenario that a checkout has. Raises InputError if it has no such list."""
    return list(json.loads(run_in(checkout, [*PYTHON, NAMES], "cannot list its scenarios").stdout))


def cpu_s(checkout: Path, name: str, requests: int) -> float:
    """Return the CPU seconds in which a checkout simulates its scenario of that name and size.

    Raises InputError if it fails.
    """
    failure = f"cannot measure the scenario '{name}' of {requests:,} requests"
    return float(run_in(checkout, [*PYTHON, CHILD, json.dumps([name, requests])], failure).stdout)


def line(name: str, requests: int, old_s: Sequence[float], new_s: Sequence[float]) -> str:
    """Return a line of the table, of the seconds of each turn."""
    turns = [old / new for old, new in zip(old_s, new_s, strict=True)]
    old_us, new_us = (min(seconds) / requests * 1e6 for seconds in (old_s, new_s))
    return (
        f"{name:<28}{requests:>9,}{old_us:>10.1f}{new_us:>10.1f}{old_us / new_us:>8.2f}"
        f"   [{min(turns):.2f}, {max(turns):.2f}]"
    )


@program(
    option("old", type=Path, metavar="OLD_CHECKOUT", help="folder of a checkout of an older commit"),
    option("--turns", type=int, default=3, help="runs of each scenario and checkout (default: 3)"),
    option("--only", default="", metavar="TEXT", help="scenarios whose name contains TEXT"),
)
def main(old: Path, turns: int, only: str) -> None:
    """Print a line for each scenario."""
    old = checked(old)
    whole("--turns", turns, "runs", least=1)
    print(f"{'scenario':<28}{'requests':>9}{'old µs':>10}{'new µs':>10}{'ratio':>8}   of turns", flush=True)
    theirs = scenarios(old)
    for speed in SCENARIOS:
        if speed.requests >= LARGE or only not in speed.name:
            continue
        if [speed.name, speed.requests] not in theirs:
            print(f"{speed.name:<28}{speed.requests:>9,}   not in {old}", flush=True)
        else:
            pairs = [
                (cpu_s(old, speed.name, speed.requests), cpu_s(PROJECT, speed.name, speed.requests))
                for _ in range(turns)
            ]
            print(line(speed.name, speed.requests, *zip(*pairs, strict=True)), flush=True)
