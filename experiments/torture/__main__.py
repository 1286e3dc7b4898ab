"""Simulate random scenarios for as long as is asked, and report each that breaks an invariant or a law.

    python -m experiments.torture [--minutes 60] [--seed 0] [--first 0] [--jobs 2] [--law NAME]

A scenario is a system with exchanged policies, limits, cluster, workload, failures, slow replicas and links,
autoscaling, migration, chunks, prefixes, a distributed pool, prefill and decode apart, a draft, tiers of KV, a LoRA
server, adapters of fewer bits and clients that react, as they are drawn together. Its invariants are checked at every
event, and then each law that applies to it. Scenario n of a seed is always the same. For what is found the commands are
printed that show it again. Exit status: 0 nothing found, 1 something, 2 bad input, 130 interrupted.
"""

from __future__ import annotations

import shlex
import signal
import time
import traceback
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import FrameType
from typing import NoReturn

from joblib import Parallel, delayed

from experiments.same_bytes.calibration import written
from experiments.same_bytes.drawing import drawn
from experiments.scenarios import scenario
from experiments.studies.command import option, program
from experiments.torture.laws import LAWS, Broken, Make
from simlora.core.checks import choice, number, whole
from simlora.core.errors import InputError

FOUND = 1
LIMIT_S, WAITS_S = 300, 6000
"""Seconds of CPU time, and of wall-clock time, after which a law counts as broken: the run may never end."""
TIMERS = (
    (signal.SIGPROF, signal.ITIMER_PROF, LIMIT_S),
    (signal.SIGALRM, signal.ITIMER_REAL, WAITS_S),  # far more, as other work may leave it little of the CPU
)
HELD, REFUSED, NOT_FOR_IT, BROKEN = "held", "refused", "does not apply", "broken"


@dataclass(frozen=True)
class Tried:
    """What became of one law of one scenario; `why` if it is broken."""

    number: int
    law: str
    ended: str
    why: str = ""


def _numbers(first: int, most: int | None, until_s: float) -> Iterator[int]:
    at = first
    while time.monotonic() < until_s and (most is None or at < first + most):
        yield at
        at += 1


def tried(seed: int, number: int, laws: Sequence[str], calibration: Path) -> list[Tried]:
    """Try laws of one scenario."""
    make = partial(scenario, drawn(seed, number, calibration).overrides)
    return [_one(make, number, name) for name in laws]


def _one(make: Make, number: int, name: str) -> Tried:
    law = LAWS[name]
    for number_of, timer, seconds in TIMERS:
        signal.signal(number_of, _too_long)
        signal.setitimer(timer, seconds)
    try:
        if not law.applies(make()):
            return Tried(number, name, NOT_FOR_IT)
        law.check(make)
    except InputError:
        return Tried(number, name, REFUSED)
    except Broken as error:
        return Tried(number, name, BROKEN, str(error))
    except Exception as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        return Tried(
            number, name, BROKEN, f"{type(error).__name__}: {error} ({where.filename}:{where.lineno})"
        )
    finally:
        for _, timer, _ in TIMERS:
            signal.setitimer(timer, 0)
    return Tried(number, name, HELD)


def _too_long(_number: int, _frame: FrameType | None) -> NoReturn:
    raise Broken(f"it takes longer than {LIMIT_S} s of CPU time, or waits for {WAITS_S} s")


def told(seed: int, found: Tried, calibration: Path) -> str:
    """Return what was found, with the commands that show it again."""
    overrides = drawn(seed, found.number, calibration).overrides
    again = f"--seed {seed} --first {found.number} --scenarios 1 --law {found.law} --jobs 1"
    return (
        f"{found.law} ({LAWS[found.law].says}): {found.why}\n"
        f"  python -m experiments.torture {again}\n"
        f"  {shlex.join(['simlora', *overrides])}"
    )


def summary(counts: Counter[tuple[str, str]], laws: Sequence[str]) -> Iterator[str]:
    """Yield a line for each law: in how many scenarios it held, does not apply, and was broken."""
    ends = (HELD, BROKEN, NOT_FOR_IT, REFUSED)
    yield f"{'law':16}" + "".join(f"{end:>16}" for end in ends)
    for law in laws:
        yield f"{law:16}" + "".join(f"{counts[law, end]:16,}" for end in ends)


@program(
    option("--minutes", type=float, default=60.0, help="how long (default: 60)"),
    option("--seed", type=int, default=0, help="of the scenarios (default: 0)"),
    option("--first", type=int, default=0, help="number of the first scenario (default: 0)"),
    option("--scenarios", type=int, help="how many at most (default: as time allows)"),
    option("--law", help=f"only this one: {', '.join(LAWS)} (default: all)"),
    option("--jobs", type=int, default=2, help="processes (default: 2)"),
)
def main(minutes: float, seed: int, first: int, scenarios: int | None, law: str | None, jobs: int) -> int:
    """Try scenarios until the time is over; return whether something was found."""
    number("--minutes", minutes, "minutes", above=0)
    whole("--seed", seed, least=0)
    whole("--first", first, least=0)
    whole("--jobs", jobs, "processes", least=1)
    if scenarios is not None:
        whole("--scenarios", scenarios, "scenarios", least=1)
    laws = tuple(LAWS) if law is None else (choice("--law", law, tuple(LAWS)),)
    counts: Counter[tuple[str, str]] = Counter()
    calibration = written()
    pool = Parallel(n_jobs=jobs, return_as="generator_unordered", pre_dispatch=2 * jobs)
    numbers = _numbers(first, scenarios, time.monotonic() + 60 * minutes)
    try:
        for found in pool(delayed(tried)(seed, at, laws, calibration) for at in numbers):
            for one in found:
                counts[one.law, one.ended] += 1
                if one.ended == BROKEN:
                    print(told(seed, one, calibration), flush=True)
    finally:
        print("\n".join(summary(counts, laws)), flush=True)
    return FOUND if any(end == BROKEN for _, end in counts) else 0
