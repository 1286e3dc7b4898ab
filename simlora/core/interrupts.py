"""What must not be left half done when a user stops a run."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def held_back(most: int | None = None) -> Iterator[None]:
    """Hold SIGINT and SIGTERM back until what is inside is done; other threads than the main one get none anyway.

    After so many (None: however many), the next one acts at once.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []

    def hold(number: int, frame: FrameType | None) -> None:
        came.append(number)
        if most is not None and len(came) > most:
            restore()
            came.clear()
            signal.raise_signal(number)

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    before = {number: signal.signal(number, hold) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        restore()
        for one in came:
            signal.raise_signal(one)
