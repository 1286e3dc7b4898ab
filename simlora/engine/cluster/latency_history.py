"""How long the requests took that have ended, for policies that expect the next ones to take as long."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from math import inf

import numpy as np
from numpy.typing import NDArray

from simlora.core.adapter import Adapter
from simlora.core.request import Request
from simlora.engine.clock import Clock


class LatencyHistory:
    """Execution times, if a policy `asks_for_executions`, and TTFTs, of the requests that are added.

    The former are seconds from admission to end of requests that had a first token, summed in the order of their ends.
    """

    def __init__(self, clock: Clock, asks_for_executions: bool) -> None:
        self._clock, self.asks_for_executions = clock, asks_for_executions
        self._executions: dict[
            int | None, tuple[float, int]
        ] = {}  # seconds and requests by adapter; None: of all
        self._ended_s, self._ttfts_s = array("d"), array("d")

    def add_execution(self, replica: int, request: Request) -> None:
        """A request has ended."""
        if request.first_token_s < 0.0:
            return
        for key in (None,) if request.adapter is None else (None, request.adapter.id):
            seconds, count = self._executions.get(key, (0.0, 0))
            self._executions[key] = seconds + (self._clock.now - request.admitted_s), count + 1

    def execution_s(self, adapter: Adapter | None = None) -> float | None:
        """Return the mean for an adapter or for all; None without any."""
        assert self.asks_for_executions, "only a router that is `informed` may ask for `execution_s`"
        seconds, count = self._executions.get(None if adapter is None else adapter.id, (0.0, 0))
        return seconds / count if count else None

    def add_ttft(self, replica: int, request: Request) -> None:
        """A request has ended, maybe without a first token."""
        self._ended_s.append(self._clock.now)
        self._ttfts_s.append(
            request.first_token_s - request.arrival_s if request.first_token_s >= 0.0 else inf
        )

    def ttfts_s(self, window_s: float) -> NDArray[np.float64]:
        """Return those of the last `window_s` seconds, inf where there was no first token."""
        return np.array(self._ttfts_s[bisect_right(self._ended_s, self._clock.now - window_s) :])
