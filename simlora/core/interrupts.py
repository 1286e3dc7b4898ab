"""What must not be left half done when a user stops a run."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any


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
