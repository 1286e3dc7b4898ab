"""Simulate random scenarios with this checkout and with OLD_CHECKOUT, and report whether their bytes are the same.

    python -m experiments.same_bytes OLD_CHECKOUT [--scenarios 1000] [--seed 0] [--only TEXT] [--jobs 2]

A checkout of an older commit is made by `git worktree add FOLDER COMMIT`. Exit status: 0 all the same, 1 some differ, 2
bad input, 130 interrupted. Scenario n of a seed stays the same whatever the number of scenarios and jobs.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from pathlib import Path
from queue import SimpleQueue
from tempfile import TemporaryDirectory

from experiments.same_bytes.calibration import written
from experiments.same_bytes.checkouts import PROJECT, Answer, Pair, checked
from experiments.same_bytes.drawing import Scenario, drawn
from experiments.same_bytes.verdicts import Report
from experiments.studies.command import ended, parser_of
from simlora.core.checks import whole

DIFFERS = 1
MOST_DRAWN = 200
"""Scenarios drawn for each that --only keeps, at most."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Compare both checkouts; return the exit status."""
    parser = parser_of("experiments.same_bytes", __doc__)
    parser.add_argument(
        "old", type=Path, metavar="OLD_CHECKOUT", help="folder of a checkout of an older commit"
    )
    parser.add_argument("--scenarios", type=int, default=1000, help="how many are compared (default: 1000)")
    parser.add_argument("--seed", type=int, default=0, help="of the scenarios (default: 0)")
    parser.add_argument(
        "--only", default="", metavar="TEXT", help="scenarios with an override that contains TEXT"
    )
    parser.add_argument(
        "--jobs", type=int, default=2, help="pairs of processes, one per checkout (default: 2)"
    )
    options = parser.parse_args(arguments)
    report = Report()

    def compare() -> None:
        whole("--scenarios", options.scenarios, "scenarios", least=1)
        whole("--seed", options.seed, least=0)
        whole("--jobs", options.jobs, "pairs of processes", least=1)
        _compare(report, checked(options.old), options.scenarios, options.seed, options.only, options.jobs)

    return ended(compare) or (DIFFERS if report.differs else 0)


def _compare(report: Report, old: Path, count: int, seed: int, only: str, jobs: int) -> None:
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
            for place, found in enumerate(threads.map(answers, _kept(seed, count, only, calibration)), 1):
                report.add(*found)
                if place % 100 == 0:
                    print(f"{place} of {count}", file=sys.stderr, flush=True)
        finally:
            threads.shutdown(cancel_futures=True)
            print("\n".join(report.lines()), flush=True)


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


if __name__ == "__main__":
    sys.exit(main())
