"""Simulated time that goes with a wall clock: the only place of the room that reads one."""

from __future__ import annotations

import time
from collections.abc import Callable


class LiveClock:
    """Simulated seconds since `start`, `speed` of them a wall second; 0 before it.

    `start` comes with the first request, so that a recorded trace begins at 0, as it is replayed.
    """

    def __init__(self, speed: float = 1.0, wall: Callable[[], float] = time.perf_counter) -> None:
        self.speed = speed
        self._wall = wall
        self._since_s: float | None = None

    def start(self) -> None:
        """Let simulated time begin, if it has not begun."""
        if self._since_s is None:
            self._since_s = self._wall()

    def now_s(self) -> float:
        """Return the simulated time."""
        return 0.0 if self._since_s is None else (self._wall() - self._since_s) * self.speed

    def wall_s(self) -> float:
        """Return wall seconds, from an arbitrary moment on."""
        return self._wall()

    def wait_s(self, time_s: float) -> float:
        """Return the wall seconds until a simulated time; 0 if it has passed."""
        return max(time_s - self.now_s(), 0.0) / self.speed

    def unix_s(self) -> float:
        """Return the time of day, for what clients are told: seconds since 1970."""
        return time.time()
