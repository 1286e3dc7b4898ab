"""How long requests have taken, for policies that expect the next ones to take as long."""

from __future__ import annotations

from simlora.core.adapter import Adapter
from simlora.core.request import Request


class Executions:
    """Seconds from admission to end of the requests that have ended, summed in that order: of all, and by adapter."""

    def __init__(self) -> None:
        self._all_s, self._count = 0.0, 0
        self._by_adapter: dict[int, tuple[float, int]] = {}  # seconds, and how many requests

    def add(self, request: Request, now_s: float) -> None:
        """A request that was admitted has ended."""
        seconds = now_s - request.admitted_s
        self._all_s += seconds
        self._count += 1
        if request.adapter is not None:
            before_s, count = self._by_adapter.get(request.adapter.id, (0.0, 0))
            self._by_adapter[request.adapter.id] = before_s + seconds, count + 1

    def mean_s(self, adapter: Adapter | None = None) -> float | None:
        """Return the mean for an adapter or for all; None as long as there are none."""
        if adapter is None:
            return self._all_s / self._count if self._count else None
        seconds, count = self._by_adapter.get(adapter.id, (0.0, 0))
        return seconds / count if count else None
