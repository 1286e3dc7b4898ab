"""What must not be left half done when a user stops a run."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing import resource_tracker
from types import FrameType
from typing import Any


@contextmanager
def unheard() -> Iterator[None]:
    """Start processes inside that never get SIGINT: a terminal sends it to all, and this one ends the others."""
    resource_tracker.ensure_running()  # up to Python 3.12 its start would unblock what is blocked here
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def held_back(most: int | None = None) -> Iterator[Callable[[], None]]:
    """Hold SIGINT and SIGTERM back until what is inside is done; other threads than the main one get none anyway.

    What is inside gets a function that lets through those that came so far. The one after so many (None: no one) acts
    at once; all after that one wait, so that what is inside can end in order.
    """
    if threading.current_thread() is not threading.main_thread():
        yield lambda: None
        return
    came: list[int] = []
    count = 0

    def hold(number: int, frame: FrameType | None) -> None:
        nonlocal count
        came.append(number)
        count += 1
        if most is not None and count == most + 1:
            let_through()

    def let_through() -> None:
        while came:
            number = came.pop(0)
            handler = before[number]
            if callable(handler):
                handler(number, None)
            else:
                signal.signal(number, handler)
                signal.raise_signal(number)
                signal.signal(number, hold)

    before: dict[int, Any] = {
        number: signal.signal(number, hold) for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        yield let_through
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        let_through()
