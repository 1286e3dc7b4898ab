"""A replica's queue."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from itertools import islice

from simlora.core.request import Request


def _key(request: Request) -> tuple[float, int]:
    return request.arrival_s, request.id


class WaitingQueue:
    """Waiting requests in order of (arrival, id); cheap at both ends."""

    __slots__ = ("_head", "_items")

    def __init__(self) -> None:
        self._items: list[Request] = []
        self._head = 0

    def __len__(self) -> int:
        return len(self._items) - self._head

    def __iter__(self) -> Iterator[Request]:
        return islice(self._items, self._head, None)

    def __reversed__(self) -> Iterator[Request]:
        return islice(reversed(self._items), len(self))

    def add(self, request: Request) -> None:
        """Insert a request at its place."""
        items = self._items
        if not items or _key(items[-1]) < _key(request):
            items.append(request)
        else:
            items.insert(bisect_left(items, _key(request), lo=self._head, key=_key), request)

    def remove(self, request: Request) -> None:
        """Take a request out."""
        items, head = self._items, self._head
        if items[head] is request:
            self._head = head + 1
            # Keep what was served from piling up, at amortised constant cost.
            if self._head * 2 > len(items):
                del items[: self._head]
                self._head = 0
            return
        place = bisect_left(items, _key(request), lo=head, key=_key)
        assert items[place] is request, f"request {request.id} is not in the queue"
        del items[place]
