"""How long the requests took that have ended, for policies that expect the next ones to take as long."""

from __future__ import annotations

from collections import deque
from math import inf

import numpy as np
from numpy.typing import NDArray

from simlora.core.adapter import Adapter
from simlora.core.request import Request
from simlora.engine.clock import Clock


class LatencyHistory:
    """Execution times, if a policy `asks_for_executions`, and TTFTs, from the first question for them on.

    The former are seconds from admission to end of requests that had a first token, summed in the order of their ends.
    """

    def __init__(self, clock: Clock, asks_for_executions: bool) -> None:
        self._clock, self.asks_for_executions = clock, asks_for_executions
        self._all_s, self._count = 0.0, 0
        self._by_adapter: dict[int, tuple[float, int]] = {}  # seconds, and how many requests
        self._ttfts: deque[tuple[float, float]] | None = None  # when requests ended, and their TTFT

    def add_execution(self, replica: int, request: Request) -> None:
        """A request has ended."""
        if request.first_token_s < 0.0:
            return
        seconds = self._clock.now - request.admitted_s
        self._all_s += seconds
        self._count += 1
        if request.adapter is not None:
            before_s, count = self._by_adapter.get(request.adapter.id, (0.0, 0))
            self._by_adapter[request.adapter.id] = before_s + seconds, count + 1

    def execution_s(self, adapter: Adapter | None = None) -> float | None:
        """Return the mean for an adapter or for all; None without any."""
        assert self.asks_for_executions, "only a router that is `informed` may ask for `execution_s`"
        if adapter is None:
            return self._all_s / self._count if self._count else None
        seconds, count = self._by_adapter.get(adapter.id, (0.0, 0))
        return seconds / count if count else None

    def add_ttft(self, replica: int, request: Request) -> None:
        """A request has ended, maybe without a first token."""
        if self._ttfts is not None:
            ttft_s = request.first_token_s - request.arrival_s if request.first_token_s >= 0.0 else inf
            self._ttfts.append((self._clock.now, ttft_s))

    def ttfts_s(self, window_s: float) -> NDArray[np.float64]:
        """Return those of the last `window_s` seconds, inf where there was no first token; forget older ones."""
        if self._ttfts is None:
            self._ttfts = deque()
        while self._ttfts and self._ttfts[0][0] <= self._clock.now - window_s:
            self._ttfts.popleft()
        return np.array([ttft_s for _, ttft_s in self._ttfts], dtype=np.float64)
