"""The garbage collector, and when it need not look for cycles."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def without_collecting() -> Iterator[None]:
    """Search for no cycles meanwhile; also a decorator.

    A simulation makes millions of objects and hardly any cycle (Fleet.replace frees its own), and a search through all
    objects of a process takes 65 ms. Searches took a quarter of a large run, and a sixth to a quarter of runs of 70 to
    500 ms. The cycles of a run are found after it.
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()
