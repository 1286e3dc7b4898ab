"""Locks between processes: one at a time works on a folder."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Wait until no other process has this lock, and hold it until what is inside is done.

    The file at `path` stays. The lock on it is the operating system's, and goes with the process that holds it, however
    that ends. Raises OSError.
    """
    with path.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
