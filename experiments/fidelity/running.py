"""Runs all rows, in as many processes as asked for, and says how far it is."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from time import monotonic
from typing import TypeVar

from joblib import Parallel, delayed

R = TypeVar("R")
EVERY_S = 10.0
"""Between two lines of progress on stderr; what takes less says nothing."""


def in_parallel(
    simulate: Callable[[R], dict[str, float]], rows: Sequence[R], jobs: int = -1
) -> list[dict[str, float]]:
    """Return the figures of all rows, in their order. `jobs`: processes, -1 is one a core."""
    found: list[dict[str, float]] = []
    said_s = monotonic()
    for figures in Parallel(n_jobs=jobs, return_as="generator")(delayed(simulate)(row) for row in rows):
        found.append(figures)
        if monotonic() - said_s > EVERY_S:
            print(f"{len(found)} of {len(rows)} rows", file=sys.stderr, flush=True)
            said_s = monotonic()
    return found
