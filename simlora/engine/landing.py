"""Admitted requests whose adapter is on its way."""

from __future__ import annotations

from collections.abc import Iterator
from math import inf

from simlora.core.request import Request


class Landing:
    """They hold a seat and memory, and run once their weights have landed.

    `requests` are in order of admission, by id; `next_s` is when the first of them can run.
    """

    __slots__ = ("_ready_s", "_since_s", "next_s", "requests")

    def __init__(self) -> None:
        self.requests: dict[int, Request] = {}
        self._ready_s: dict[int, float] = {}
        self._since_s: dict[int, float] = {}
        self.next_s = inf

    def __len__(self) -> int:
        return len(self.requests)

    def __iter__(self) -> Iterator[Request]:
        return iter(self.requests.values())

    def add(self, request: Request, now_s: float, ready_s: float) -> None:
        """A request waits from now until then."""
        self.requests[request.id] = request
        self._since_s[request.id] = now_s
        self._ready_s[request.id] = ready_s
        self.next_s = min(self.next_s, ready_s)

    def take(self, id: int, now_s: float) -> float:
        """Take a request out, when its weights are there or before; return how long it has waited for them."""
        waited_s = min(now_s, self._ready_s.pop(id)) - self._since_s.pop(id)
        del self.requests[id]
        self.next_s = min(self._ready_s.values(), default=inf)
        return waited_s

    def landed(self, now_s: float) -> list[Request]:
        """Return those whose weights are there, in order of admission."""
        return [request for id, request in self.requests.items() if self._ready_s[id] <= now_s]
