"""Put small mistakes into the code that decides results, one at a time, and report those that no test notices.

    python -m experiments.mutation [--rooms policies engine] [--mutants 50] [--seed 0] [--jobs 2]

Mistakes are drawn from all that can be made: a `<` for a `<=`, a number one too high, an `and` for an `or`. They are
tried in the order of the draw, so that those of an interrupted run are a draw, too: in a copy of the project, on the
tests that import their module first, then on those of their room and the golden cases, and then on those of all rooms,
until one fails. One that lives changes nothing that can be seen, or shows a test that is missing. Exit status: 0 all
died, 1 one lived, 2 bad input, 130 interrupted.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from queue import SimpleQueue
from tempfile import TemporaryDirectory

import numpy as np

from experiments.mutation.mutants import Mutant, mutants
from experiments.studies.command import PROJECT, option, program
from simlora.core.checks import choice, whole
from simlora.core.errors import InputError

ROOMS = ("core", "latency", "memory", "policies", "metrics", "engine")
JUDGES = (*ROOMS, "api", "golden", "invariants", "results")
"""Folders of tests that are asked about every mistake."""
LEFT_OUT = shutil.ignore_patterns(
    ".*", "outputs", "build", "dist", "*.so", "compiled.json", "__pycache__", "*.egg-info"
)
LIVED = 1
PATIENCE, GRACE_S = 4.0, 60.0
"""How many times as long as without a mistake tests may take, and how many seconds more."""


def survivors(rooms: Sequence[str], only: str, count: int, seed: int, jobs: int) -> list[Mutant]:
    """Return the mutants that no test notices, and print a line for each that was tried."""
    known = [mutant for mutant in mutants(PROJECT, rooms) if only in mutant.file.as_posix()]
    if not known:
        raise InputError(f"--only is {only!r}, must be part of the path of a file in {', '.join(rooms)}")
    drawn = [known[at] for at in np.random.default_rng(seed).permutation(len(known))[:count]]
    print(f"{len(drawn)} of {len(known):,} mutants of {', '.join(rooms)}")
    with copies(jobs) as projects:
        limits_s = baseline(projects[0])
        free: SimpleQueue[Path] = SimpleQueue()
        for project in projects:
            free.put(project)

        def tried(mutant: Mutant) -> str:
            project = free.get()
            try:
                return killer(mutant, project, limits_s)
            finally:
                free.put(project)

        lived = []
        with ThreadPoolExecutor(jobs) as pool:
            for number, (mutant, by) in enumerate(zip(drawn, pool.map(tried, drawn), strict=True), 1):
                print(
                    f"{number:>4} {f'killed by {by}' if by else 'LIVED':<24} {mutant.file} {mutant.operator}"
                )
                if not by:
                    lived.append(mutant)
                    print("\n".join(f"     {line}" for line in mutant.difference(PROJECT)))
                sys.stdout.flush()
    print(f"{len(drawn) - len(lived)} of {len(drawn)} mutants died")
    return lived


def killer(mutant: Mutant, project: Path, limits_s: Mapping[str, float]) -> str:
    """Return which folder of tests fails, in a copy of the project, because of a mutant; "" if none does."""
    file = project / mutant.file
    before = file.read_text(encoding="utf-8")
    file.write_text(mutant.code(project), encoding="utf-8")
    try:
        room = mutant.file.parts[1]
        near = importers(project, mutant.file, room)
        if near and not passes(project, *near, limit_s=limits_s[room]):
            return "tests that import it"
        for folder in judges(room, limits_s):
            if not passes(project, folder, limit_s=limits_s[folder]):
                return folder
        return ""
    finally:
        file.write_text(before, encoding="utf-8")


def judges(room: str, limits_s: Mapping[str, float]) -> list[str]:
    """Return the folders of tests that are asked about a room.

    Its own and the golden cases notice most mistakes and come first; of these and of the others the quickest first.
    """
    return sorted(JUDGES, key=lambda folder: (folder not in (room, "golden"), limits_s[folder], folder))


def importers(project: Path, file: Path, room: str) -> list[str]:
    """Return a room's test files that import a module, those named after it first, as paths below `tests/`.

    They are asked first because they take seconds and notice most mistakes.
    """
    module = ".".join(file.with_suffix("").parts)
    found = [
        path.relative_to(project / "tests").as_posix()
        for path in (project / "tests" / room).rglob("test_*.py")
        if module in path.read_text(encoding="utf-8")
    ]
    return sorted(found, key=lambda path: (file.stem not in path, path))


def passes(project: Path, *tests: str, limit_s: float | None = None) -> bool:
    """Whether tests, files or folders below `tests/`, pass in time."""
    paths = [f"tests/{each}" for each in tests]
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *paths]
    environment = os.environ | {"PYTHONPATH": str(project), "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        done = subprocess.run(
            command, cwd=project, env=environment, capture_output=True, timeout=limit_s, check=False
        )
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0


def baseline(project: Path) -> dict[str, float]:
    """Return how long each folder of tests may take. Raises InputError if one fails as it is."""
    limits_s = {}
    for folder in JUDGES:
        started = time.perf_counter()
        if not passes(project, folder):
            raise InputError(f"tests/{folder} fails without any mistake; mend that first")
        limits_s[folder] = PATIENCE * (time.perf_counter() - started) + GRACE_S
    return limits_s


@contextmanager
def copies(count: int) -> Iterator[list[Path]]:
    """Give copies of the project in which nothing is compiled."""
    with TemporaryDirectory(prefix="mutants-") as folder:
        projects = [Path(folder) / str(number) for number in range(count)]
        for project in projects:
            shutil.copytree(PROJECT, project, ignore=LEFT_OUT)
        yield projects


@program(
    option("--rooms", nargs="+", default=ROOMS, metavar="ROOM", help=f"of {', '.join(ROOMS)} (default: all)"),
    option("--mutants", type=int, default=50, metavar="N", help="how many are drawn (default: 50)"),
    option("--only", default="", metavar="TEXT", help="files whose path has this (default: all)"),
    option("--seed", type=int, default=0, help="of the draw (default: 0)"),
    option("--jobs", type=int, default=2, metavar="N", help="processes (default: 2)"),
)
def main(rooms: Sequence[str], mutants: int, only: str, seed: int, jobs: int) -> int:
    """Try mutants; return whether one lived."""
    rooms = [choice("--rooms", room, ROOMS) for room in rooms]
    whole("--mutants", mutants, "mutants", least=1)
    whole("--seed", seed, least=0)
    whole("--jobs", jobs, "processes", least=1)
    return LIVED if survivors(rooms, only, mutants, seed, jobs) else 0
