"""The process that answers when handing work over is timed: without torch, whose import takes seconds."""

from __future__ import annotations

from typing import Any


def answer(flags: Any, times: int) -> None:
    """See the flag of the one that hands over, take it back, and set the other, so many times."""
    for _ in range(times):
        while not flags[0]:
            pass
        flags[0] = 0
        flags[1] = 1
