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

    def count_of(self, adapter_id: int) -> int:
        """Return the number of requests for an adapter, by its id, or with BASE_MODEL for none."""
        queue = self._queues().get(adapter_id)
        return 0 if queue is None else queue.count

    def of(self, adapter_id: int) -> Iterator[Request]:
        """Return the requests for an adapter, by its id, or with BASE_MODEL for none; in order."""
        return iter(self._queues().get(adapter_id, ()))

    def among(self, adapters: Set[int], after: Request) -> Iterator[Request]:
        """Yield the requests behind `after` that use one of these adapters, by id, or none at all; in order.

        Costs O(adapters), of the given ones or of those that are waited for, and O(log n) for each of them. The queue
        may not change meanwhile.
        """
        queues = self._queues()
        few = adapters if len(adapters) < len(queues) else [id for id in queues if id in adapters]
        found = [queues[id] for id in (*few, BASE_MODEL) if id in queues]
        return _merged(found, after) if found else iter(())

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


def _merged(queues: list[RequestQueue], after: Request) -> Iterator[Request]:
    """Yield the requests of several queues that are behind `after`, in order."""
    heap: list[tuple[float, int, list[Request], int]] = []
    for queue in queues:
        items, place = queue._items, queue._place(after)
        if place < len(items) and items[place] is after:
            place += 1
        if place < len(items):
            heap.append((items[place].arrival_s, items[place].id, items, place))
    heapify(heap)
    while heap:
        _, _, items, place = heap[0]
        yield items[place]
        place += 1
        if place < len(items):
            heapreplace(heap, (items[place].arrival_s, items[place].id, items, place))
        else:
            heappop(heap)
