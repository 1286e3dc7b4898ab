"""A priority queue of cached items by worth, where worth changes only with use and with time."""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heapify, heappop, heappush, heapreplace
from typing import Final, Generic, TypeVar

from simlora.core.errors import not_defined
from simlora.memory.worth import Worth

T = TypeVar("T")
Entry = tuple[float, int, T, float]
"""What orders an item, the number of its put, the item, and what the kind of order keeps with it."""
SPARE: Final = 64
"""Stale heap entries that are always tolerated: below this number the heap is not cleaned up."""
NEVER_S: Final = -1.0


class Order(Generic[T]):
    """Items by `worth`; among equals the one put first.

    An item is never worth less than when it was last evaluated, nor more than its key, and only items that these bounds
    leave undecided are evaluated again. A put or a removal costs O(1): a new item is evaluated, and finds its place in
    O(log n), when the order is next asked. `puts` counts the puts.
    """

    __slots__ = ("_heap", "_live", "_new", "_worth", "puts")

    def __init__(self, worth: Worth[T]) -> None:
        self._worth = worth
        self._new: dict[T, int] = {}  # put since the order was last asked, by item the number of its put
        self._live: dict[T, int] = {}  # in the heap: entries of other numbers are stale
        self._heap: list[Entry[T]] = []
        self.puts = 0

    def __len__(self) -> int:
        return len(self._live) + len(self._new)

    def __contains__(self, thing: T) -> bool:
        return thing in self._live or thing in self._new

    def __iter__(self) -> Iterator[T]:
        return iter([*self._live, *self._new])

    def put(self, thing: T) -> None:
        """Insert an item, or update its key if it is present."""
        self.puts += 1
        self._live.pop(thing, None)
        self._new[thing] = self.puts

    def discard(self, thing: T) -> None:
        """Remove an item if it is present."""
        if self._new.pop(thing, None) is None:
            self._live.pop(thing, None)

    def first(self, now_s: float) -> tuple[float, T] | None:
        """Return the first item's current worth and the item; None if empty."""
        raise not_defined(self, "first")

    def _entry(self, thing: T, number: int) -> Entry[T]:
        """Return the entry of an item that was not evaluated yet."""
        raise not_defined(self, "_entry")

    def _take_in(self) -> None:
        """Give new items their places in the heap, and drop stale entries if they are most of it."""
        heap, live = self._heap, self._live
        for thing, number in self._new.items():
            live[thing] = number
            heappush(heap, self._entry(thing, number))
        self._new.clear()
        if len(heap) > 2 * len(live) + SPARE:
            heap[:] = [entry for entry in heap if live.get(entry[2]) == entry[1]]
            heapify(heap)


class LeastFirst(Order[T]):
    """What is worth least is first; an entry keeps the time as of which its item was evaluated."""

    __slots__ = ()

    def first(self, now_s: float) -> tuple[float, T] | None:
        if self._new:
            self._take_in()
        heap, live, worth = self._heap, self._live, self._worth
        while heap:
            least, number, thing, as_of_s = heap[0]
            if live.get(thing) != number:
                heappop(heap)
            elif as_of_s == now_s or not worth.most_fade:
                return least, thing
            else:
                heapreplace(heap, (worth.key(thing) - worth.fade(thing, now_s), number, thing, now_s))
        return None

    def _entry(self, thing: T, number: int) -> Entry[T]:
        return self._worth.key(thing) - self._worth.most_fade, number, thing, NEVER_S


class GreatestFirst(Order[T]):
    """What is worth most is first; an entry keeps the key, which like worth has the sign changed."""

    __slots__ = ("_near", "_near_s")

    def __init__(self, worth: Worth[T]) -> None:
        super().__init__(worth)
        self._near: list[Entry[T]] = []  # taken from the heap to be compared as of `_near_s`
        self._near_s = NEVER_S

    def first(self, now_s: float) -> tuple[float, T] | None:
        if self._new:
            self._take_in()
        heap, near, live, worth = self._heap, self._near, self._live, self._worth
        if not worth.most_fade:
            return self._head(heap)
        if now_s != self._near_s:
            for _, number, thing, key in near:
                if live.get(thing) == number:
                    heappush(heap, (key, number, thing, key))
            near.clear()
            self._near_s = now_s
        found = self._head(near)
        while heap and (found is None or heap[0][:2] < near[0][:2]):
            key, number, thing, _ = heappop(heap)
            if live.get(thing) == number:
                heappush(near, (key + worth.fade(thing, now_s), number, thing, key))
                found = self._head(near)
        return found

    def most(self) -> float:
        """Return an upper bound of every worth: the greatest key. Not when empty."""
        if self._new:
            self._take_in()
        keys = [key for _, number, thing, key in self._near if self._live.get(thing) == number]
        if self._head(self._heap) is not None:
            keys.append(self._heap[0][0])
        return -min(keys)

    def _head(self, heap: list[Entry[T]]) -> tuple[float, T] | None:
        while heap:
            worth, number, thing, _ = heap[0]
            if self._live.get(thing) == number:
                return -worth, thing
            heappop(heap)
        return None

    def _entry(self, thing: T, number: int) -> Entry[T]:
        key = -self._worth.key(thing)
        return key, number, thing, key
