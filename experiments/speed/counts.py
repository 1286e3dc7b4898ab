"""Count what a plain S-LoRA request makes the simulator do, interpreted: calls, and source lines.

Figures do not depend on the machine. A call is a Python function of simlora that is entered, or a generator that is
resumed. A line counts each time that it is executed. `experiments.speed.instructions` counts compiled code.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable
from linecache import getline
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import pandas as pd

import simlora
from experiments.scenarios import scenario
from experiments.speed.scenarios import Speed
from experiments.studies.command import option, program
from simlora.core.checks import whole
from simlora.engine.cluster.simulation import Simulation

ROOT = f"{Path(simlora.__file__).parent}/"
REQUESTS = 2_000


class Counted(NamedTuple):
    """Calls by file from which and into which, and executions by file and line, a request."""

    calls: dict[tuple[str, str], float]
    lines: dict[tuple[str, int], float]

    @property
    def between_files(self) -> float:
        """Calls from one file into another."""
        return sum(times for (before, into), times in self.calls.items() if before != into)

    def by_file(self) -> pd.DataFrame:
        """Return calls and lines of each file, those with the most calls first."""
        calls, lines = (
            pd.Series(each, dtype=float).groupby(level=level).sum()
            for each, level in ((self.calls, 1), (self.lines, 0))
        )
        return (
            pd.DataFrame({"calls": calls, "lines": lines}).fillna(0.0).sort_values("calls", ascending=False)
        )


def count(run: Callable[[], object], requests: int, root: str = ROOT) -> Counted:
    """Run a function that serves so many requests; return what it did in files below `root`, by a trace.

    That takes some ten times as long as without.
    """
    calls: Counter[tuple[str, str]] = Counter()
    lines: Counter[tuple[str, int]] = Counter()

    def entered(frame: FrameType, event: str, argument: Any) -> Any:
        file = frame.f_code.co_filename
        if not file.startswith(root):
            return None
        before = frame.f_back
        calls[before.f_code.co_filename if before else "", file] += 1
        return executed

    def executed(frame: FrameType, event: str, argument: Any) -> Any:
        if event == "line":
            lines[frame.f_code.co_filename, frame.f_lineno] += 1
        return executed

    outer = sys.gettrace()
    sys.settrace(entered)
    try:
        run()
    finally:
        sys.settrace(outer)
    short = {each: each.removeprefix(root) for pair in calls for each in pair}
    return Counted(
        {(short[before], short[into]): times / requests for (before, into), times in calls.items()},
        {(short[file], line): times / requests for (file, line), times in lines.items()},
    )


def plain(requests: int = REQUESTS, replicas: int = 1) -> Counted:
    """Simulate plain S-LoRA and return what each request makes it do; building the scenario is not counted."""
    return count(Simulation(scenario(Speed("counted", replicas, requests).overrides())).run, requests)


@program(
    option("--requests", type=int, default=REQUESTS, metavar="N", help=f"default: {REQUESTS}"),
    option("--replicas", type=int, default=1, metavar="N", help="default: 1"),
    option("--lines", action="store_true", help="print every line, too"),
)
def main(requests: int, replicas: int, lines: bool) -> None:
    """Count and print."""
    whole("--requests", requests, "requests", least=1)
    whole("--replicas", replicas, "replicas", least=1)
    found = plain(requests, replicas)
    files = found.by_file()
    print(f"Plain S-LoRA, {requests:,} requests, replicas: {replicas}; figures are per request\n")
    print(f"{files.calls.sum():.2f} calls, {found.between_files:.2f} of them from one file into another")
    print(f"{files.lines.sum():.2f} lines\n")
    print(files[files.calls >= 0.01].to_string(float_format="{:.2f}".format))
    if lines:
        print()
        for (file, line), times in sorted(found.lines.items()):
            print(f"{times:8.2f}  {f'{file}:{line}':<44}{getline(ROOT + file, line).strip()}")
