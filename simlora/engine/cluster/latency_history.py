"""How long the requests took that have ended, for policies that expect the next ones to take as long."""

from __future__ import annotations

from collections import deque
from math import inf

import numpy as np
from numpy.typing import NDArray

from simlora.core.adapter import Adapter
from simlora.core.request import Request
from simlora.engine.clock import Clock


class ExecutionTimes:
    """Seconds from admission to end of the requests that had a first token: of all, and by adapter.

    They are summed in the order in which the requests end.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._all_s, self._count = 0.0, 0
        self._by_adapter: dict[int, tuple[float, int]] = {}  # seconds, and how many requests

    def add(self, replica: int, request: Request) -> None:
        """A request has ended."""
        if request.first_token_s < 0.0:
            return
        seconds = self._clock.now - request.admitted_s
        self._all_s += seconds
        self._count += 1
        if request.adapter is not None:
            before_s, count = self._by_adapter.get(request.adapter.id, (0.0, 0))
            self._by_adapter[request.adapter.id] = before_s + seconds, count + 1

    def mean_s(self, adapter: Adapter | None = None) -> float | None:
        """Return the mean for an adapter or for all; None without any."""
        if adapter is None:
            return self._all_s / self._count if self._count else None
        seconds, count = self._by_adapter.get(adapter.id, (0.0, 0))
        return seconds / count if count else None


class RecentTtfts:
    """TTFTs of the requests that ended lately, kept from the first question on."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._ended: deque[tuple[float, float]] | None = None  # when, and TTFT

    def add(self, replica: int, request: Request) -> None:
        """A request has ended."""
        if self._ended is not None:
            ttft_s = request.first_token_s - request.arrival_s if request.first_token_s >= 0.0 else inf
            self._ended.append((self._clock.now, ttft_s))

    def within(self, window_s: float) -> NDArray[np.float64]:
        """Return those of the last `window_s` seconds, inf where there was no first token; forget older ones."""
        if self._ended is None:
            self._ended = deque()
        while self._ended and self._ended[0][0] <= self._clock.now - window_s:
            self._ended.popleft()
        return np.array([ttft_s for _, ttft_s in self._ended], dtype=np.float64)
