"""Numbers of single runs that only their tables have, kept as runs are: a run is not simulated twice for one."""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable
from typing import Any

from experiments.studies.points import Point
from experiments.studies.running import changed
from simlora.api import simulate
from simlora.api.cache import open_cache
from simlora.results.result import Result

Read = Callable[[Result], Any]
"""Returns plain values, such as a list of numbers."""


def of_run(point: Point, read: Read) -> Any:
    """Return what a function reads from a run's tables. Simulates, unless it did for the same function.

    For settings that name no files but those named after what they contain: neither what is in a file, nor what the
    function calls, is part of the name.
    """
    cache, overrides = open_cache(), changed(point)
    text = hashlib.sha256(inspect.getsource(read).encode()).hexdigest()
    question = ["of a run's tables", read.__qualname__, text, sorted(overrides)]
    path = cache.named(question)
    kept = cache.read(path, "question", question, "found")
    if kept is None:
        kept = read(simulate(list(overrides)))
        cache.write(path, {"question": question, "found": kept})
    return kept
