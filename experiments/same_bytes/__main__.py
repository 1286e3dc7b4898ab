"""Simulate random scenarios with this checkout and with OLD_CHECKOUT, and report whether their bytes are the same.

    python -m experiments.same_bytes OLD_CHECKOUT [--scenarios 1000] [--seed 0] [--only TEXT] [--jobs 2]

A checkout of an older commit is made by `git worktree add FOLDER COMMIT`. Exit status: 0 all the same, 1 some differ, 2
bad input, 130 interrupted. Scenario n of a seed stays the same whatever the number of scenarios and jobs.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from pathlib import Path
from queue import SimpleQueue
from tempfile import TemporaryDirectory

from experiments.same_bytes.calibration import written
from experiments.same_bytes.checkouts import PROJECT, Answer, Pair, checked
from experiments.same_bytes.drawing import Scenario, drawn
from experiments.same_bytes.verdicts import Report
from experiments.studies.command import option, program
from simlora.core.checks import whole

DIFFERS = 1
MOST_DRAWN = 200
"""Scenarios drawn for each that --only keeps, at most."""


def _kept(seed: int, count: int, only: str, calibration: Path) -> Iterator[Scenario]:
    """Yield scenarios, those that --only keeps; fewer if these are rare."""
    kept = 0
    for number in range(count * (MOST_DRAWN if only else 1)):
        scenario = drawn(seed, number, calibration)
        if any(only in override for override in scenario.overrides):
            yield scenario
            kept += 1
        if kept == count:
            return


@program(
    option("old", type=Path, metavar="OLD_CHECKOUT", help="folder of a checkout of an older commit"),
    option("--scenarios", type=int, default=1000, help="how many are compared (default: 1000)"),
    option("--seed", type=int, default=0, help="of the scenarios (default: 0)"),
    option("--only", default="", metavar="TEXT", help="scenarios with an override that contains TEXT"),
    option("--jobs", type=int, default=2, help="pairs of processes, one per checkout (default: 2)"),
)
def main(old: Path, scenarios: int, seed: int, only: str, jobs: int) -> int:
    """Compare both checkouts; return whether something differs."""
    whole("--scenarios", scenarios, "scenarios", least=1)
    whole("--seed", seed, least=0)
    whole("--jobs", jobs, "pairs of processes", least=1)
    old, report = checked(old), Report()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="same_bytes-")))
        calibration = written()
        pairs: SimpleQueue[Pair] = SimpleQueue()
        for job in range(jobs):
            pairs.put(stack.enter_context(closing(Pair(old, PROJECT, folder / str(job)))))
        threads = stack.enter_context(ThreadPoolExecutor(jobs))

        def answers(scenario: Scenario) -> tuple[Scenario, Answer, Answer]:
            pair = pairs.get()
            try:
                return scenario, *pair.answers(scenario.overrides)
            finally:
                pairs.put(pair)

        try:
            for place, found in enumerate(threads.map(answers, _kept(seed, scenarios, only, calibration)), 1):
                report.add(*found)
                if place % 100 == 0:
                    print(f"{place} of {scenarios}", file=sys.stderr, flush=True)
        finally:
            threads.shutdown(cancel_futures=True)
            print("\n".join(report.lines()), flush=True)
    return DIFFERS if report.differs else 0
