"""A replica's queue."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Set
from heapq import merge
from itertools import islice

from simlora.core.request import Request
from simlora.core.trace import BASE_MODEL


def _key(request: Request) -> tuple[float, int]:
    return request.arrival_s, request.id


def _adapter(request: Request) -> int:
    return request.adapter.id if request.adapter is not None else BASE_MODEL


class WaitingQueue:
    """Waiting requests in order of (arrival, id); cheap at both ends, and by adapter.

    Once it is asked for by adapter, those taken out of the middle are only marked: a queue of a million
    out of whose middle most are served would else be moved a million times.
    """

    __slots__ = ("_by_adapter", "_gone", "_head", "_items")

    def __init__(self) -> None:
        self._items: list[Request] = []
        self._head = 0
        self._gone: set[int] = set()  # ids that are still among the items, behind the head
        self._by_adapter: dict[int, WaitingQueue] | None = None  # those that are not empty, once somebody asks

    def __len__(self) -> int:
        return len(self._items) - self._head - len(self._gone)

    def __iter__(self) -> Iterator[Request]:
        return self._there(islice(self._items, self._head, None))

    def __reversed__(self) -> Iterator[Request]:
        return self._there(islice(reversed(self._items), len(self._items) - self._head))

    def _there(self, items: Iterator[Request]) -> Iterator[Request]:
        gone = self._gone
        return (request for request in items if request.id not in gone) if gone else items

    def add(self, request: Request) -> None:
        """Insert a request at its place."""
        items = self._items
        if request.id in self._gone:
            self._gone.remove(request.id)  # back at its place
        elif not items or _key(items[-1]) < _key(request):
            items.append(request)
        else:
            items.insert(bisect_left(items, _key(request), lo=self._head, key=_key), request)
        if self._by_adapter is not None:
            self._queue_of(request).add(request)

    def remove(self, request: Request) -> None:
        """Take a request out."""
        if self._by_adapter is not None:
            queue = self._queue_of(request)
            queue.remove(request)
            if not queue:
                del self._by_adapter[_adapter(request)]
        items, head = self._items, self._head
        if items[head] is request:
            head += 1
            gone = self._gone
            while gone and items[head].id in gone:
                gone.remove(items[head].id)
                head += 1
            # Keep what was served from piling up, at amortised constant cost.
            if head * 2 > len(items):
                del items[:head]
                head = 0
            self._head = head
        elif self._by_adapter is not None:
            self._gone.add(request.id)
        else:
            place = bisect_left(items, _key(request), lo=head, key=_key)
            assert items[place] is request, f"request {request.id} is not in the queue"
            del items[place]

    def among(self, adapters: Set[int], after: Request) -> Iterator[Request]:
        """Requests behind `after` that use one of these adapters, by id, or none at all; in order."""
        queues = self._by_adapter
        if queues is None:
            queues = self._by_adapter = {}
            for request in self:
                self._queue_of(request).add(request)
        wanted = [queues[id] for id in queues.keys() & adapters]
        if BASE_MODEL in queues:
            wanted.append(queues[BASE_MODEL])
        return merge(*(queue._behind(after) for queue in wanted), key=_key)

    def _behind(self, after: Request) -> Iterator[Request]:
        items, head = self._items, self._head
        if _key(items[head]) <= _key(after):
            head = bisect_right(items, _key(after), lo=head, key=_key)
        return islice(items, head, None)

    def _queue_of(self, request: Request) -> WaitingQueue:
        assert self._by_adapter is not None
        id = _adapter(request)
        found = self._by_adapter.get(id)
        if found is None:
            found = self._by_adapter[id] = WaitingQueue()
        return found
