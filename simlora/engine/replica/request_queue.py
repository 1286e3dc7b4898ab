"""A replica's waiting queue."""

from __future__ import annotations

from collections.abc import Iterator, Set
from heapq import heapify, heappop, heapreplace
from itertools import islice

from simlora.core.request import Request, arrival_order
from simlora.core.trace import BASE_MODEL


class RequestQueue:
    """Waiting requests in order of (arrival, id); cheap at both ends, and by adapter.

    `count` is how many there are. `returned` counts requests inserted before the end: preempted ones, and requests
    from other replicas.
    """

    __slots__ = ("_by_adapter", "_head", "_items", "count", "returned")

    def __init__(self) -> None:
        self.count = self.returned = 0
        self._items: list[Request] = []
        self._head = 0
        self._by_adapter: tuple[dict[int, RequestQueue], ...] = ()  # none before it is asked for

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[Request]:
        return islice(self._items, self._head, None)

    def __reversed__(self) -> Iterator[Request]:
        return islice(reversed(self._items), self.count)

    def add(self, request: Request) -> None:
        """Insert a request at its place."""
        self.count += 1
        items = self._items
        # A later arrival is the common case, millions of times.
        if (
            not items
            or items[-1].arrival_s < request.arrival_s
            or arrival_order(items[-1]) < arrival_order(request)
        ):
            items.append(request)
        else:
            items.insert(self._place(request), request)
            self.returned += 1
        for queues in self._by_adapter:
            _queue_of(queues, request).add(request)

    def remove(self, request: Request) -> None:
        """Take a request out."""
        for queues in self._by_adapter:
            queue = queues[request.adapter_id]
            queue.remove(request)
            if not queue.count:
                del queues[request.adapter_id]
        self.count -= 1
        items, head = self._items, self._head
        if items[head] is not request:
            place = self._place(request)
            assert items[place] is request, f"request {request.id} is not in the queue"
            if 2 * place > head + len(items):
                del items[place]
                return
            # Move the shorter part: the queue may hold a million requests.
            items[head + 1 : place + 1] = items[head:place]
        self._head = head + 1
        # Served requests do not pile up; amortised cost O(1).
        if self._head * 2 > len(items):
            del items[: self._head]
            self._head = 0

    def counts(self) -> dict[int, int]:
        """Return the number of requests by adapter id, in any order; BASE_MODEL stands for the base model."""
        return {id: len(queue) for id, queue in self._queues().items()}

    def of(self, adapter_id: int) -> Iterator[Request]:
        """Return the requests for an adapter, by its id, or with BASE_MODEL for none; in order."""
        return iter(self._queues().get(adapter_id, ()))

    def among(self, adapters: Set[int], after: Request) -> Iterator[Request]:
        """Yield the requests behind `after` that use one of these adapters, by id, or none at all; in order.

        Costs O(adapters) for the first of them. The queue may not change meanwhile.
        """
        queues = self._queues()
        wanted = [queues[id] for id in queues.keys() & adapters]
        if BASE_MODEL in queues:
            wanted.append(queues[BASE_MODEL])
        heap = [(*arrival_order(queue._items[queue._head]), queue._items, queue._head) for queue in wanted]
        heapify(heap)
        passed = arrival_order(after)
        while heap:
            arrival_s, id, items, place = heap[0]
            if (arrival_s, id) > passed:
                yield items[place]
            if place + 1 < len(items):
                heapreplace(heap, (*arrival_order(items[place + 1]), items, place + 1))
            else:
                heappop(heap)

    def place(self, request: Request) -> int:
        """Return the number of requests ahead of this one; O(log n)."""
        return self._place(request) - self._head

    def _place(self, request: Request) -> int:
        """Return the index of the first waiting request that is not ahead of this one."""
        items, low, high = self._items, self._head, len(self._items)
        while low < high:
            middle = (low + high) >> 1
            other = items[middle]
            if other.arrival_s < request.arrival_s or (
                other.arrival_s == request.arrival_s and other.id < request.id
            ):
                low = middle + 1
            else:
                high = middle
        return low

    def _queues(self) -> dict[int, RequestQueue]:
        """Return the queues of the adapters for which requests wait, by adapter id."""
        if not self._by_adapter:
            queues: dict[int, RequestQueue] = {}
            for request in self:
                _queue_of(queues, request).add(request)
            self._by_adapter = (queues,)
        return self._by_adapter[0]


def _queue_of(queues: dict[int, RequestQueue], request: Request) -> RequestQueue:
    found = queues.get(request.adapter_id)
    if found is None:
        found = queues[request.adapter_id] = RequestQueue()
    return found
