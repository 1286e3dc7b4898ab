"""A policy that kills the process that simulates it, once, in the middle of a sweep."""

import os
import signal
from pathlib import Path

from simlora.policies.scheduling.fcfs import Fcfs

KEPT = 1
"""Runs that are in the cache before the process dies."""


class KillsItsProcess(Fcfs):
    """First come, first served, in a process that dies as soon as the cache has `KEPT` runs, if it did not yet.

    The run that dies with it is not in the cache: so a process died with runs to go, however fast the machine is.
    """

    def __init__(self) -> None:
        super().__init__()
        cache = Path(os.environ["SIMLORA_CACHE_DIR"])
        if not died(cache).exists() and len(list(cache.glob("[0-9a-f]*.json"))) >= KEPT:
            died(cache).write_text(str(os.getpid()))
            os.kill(os.getpid(), signal.SIGKILL)


def died(cache: Path) -> Path:
    """Return the file that says which process died, beside this cache."""
    return cache.with_name(f"{cache.name}.died")
