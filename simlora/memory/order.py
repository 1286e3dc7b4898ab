"""A priority queue of cached items by worth, where worth changes only with use and with time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, Generic, TypeVar

from simlora.core.errors import not_defined
from simlora.memory.heap import Entry, clean, pop, push, sink
from simlora.memory.worth import Worth

T = TypeVar("T")
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
        self._live: dict[T, Entry[T]] = {}
        self._heap: list[Entry[T]] = []
        self.puts = 0

    def __len__(self) -> int:
        return len(self._live) + len(self._new)

    def __contains__(self, thing: T) -> bool:
        return thing in self._live or thing in self._new

    def __iter__(self) -> Iterator[T]:
        return iter([*self._live, *self._new])

    def put(self, thing: T) -> None:
        """Insert an item, or update its key if it is present, behind its equals."""
        self.puts += 1
        self.put_at(thing, self.puts)

    def put_at(self, thing: T, place: int) -> None:
        """Insert an item, or update its key if it is present, at a `place` among its equals."""
        self._drop(thing)
        self._new[thing] = place

    def place(self, thing: T) -> int:
        """Return the place of an item among its equals: the number of the put that inserted it."""
        number = self._new.get(thing)
        return number if number is not None else self._live[thing].number

    def discard(self, thing: T) -> None:
        """Remove an item if it is present."""
        if thing in self._new:
            del self._new[thing]
        else:
            self._drop(thing)

    def _drop(self, thing: T) -> None:
        if (entry := self._live.get(thing)) is not None:
            entry.stale = True
            del self._live[thing]

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
            entry = live[thing] = self._entry(thing, number)
            push(heap, entry)
        self._new.clear()
        if len(heap) > 2 * len(live) + SPARE:
            clean(heap)


class LeastFirst(Order[T]):
    """What is worth least is first. The base of an entry is the time as of which its item was evaluated."""

    __slots__ = ()

    def first(self, now_s: float) -> tuple[float, T] | None:
        if self._new:
            self._take_in()
        heap, worth = self._heap, self._worth
        while heap:
            entry = heap[0]
            if entry.stale:
                pop(heap)
            elif entry.base == now_s or not worth.most_fade:
                return entry.rank, entry.thing
            else:
                entry.rank, entry.base = worth.key(entry.thing) - worth.fade(entry.thing, now_s), now_s
                sink(heap, 0)
        return None

    def _entry(self, thing: T, number: int) -> Entry[T]:
        return Entry(thing, number, self._worth.key(thing) - self._worth.most_fade, NEVER_S)


class GreatestFirst(Order[T]):
    """What is worth most is first. The rank of an entry is worth with the sign changed, its base so the key."""

    __slots__ = ("_near", "_near_s")

    def __init__(self, worth: Worth[T]) -> None:
        super().__init__(worth)
        self._near: list[Entry[T]] = []  # taken from the heap to be compared as of `_near_s`
        self._near_s = NEVER_S

    def first(self, now_s: float) -> tuple[float, T] | None:
        if self._new:
            self._take_in()
        heap, near, worth = self._heap, self._near, self._worth
        if not worth.most_fade:
            return self._head(heap)
        if now_s != self._near_s:
            for entry in near:
                if not entry.stale:
                    entry.rank = entry.base
                    push(heap, entry)
            near.clear()
            self._near_s = now_s
        found = self._head(near)
        while heap and (found is None or heap[0].precedes(near[0])):
            entry = heap[0]
            pop(heap)
            if not entry.stale:
                entry.rank = entry.base + worth.fade(entry.thing, now_s)
                push(near, entry)
                found = self._head(near)
        return found

    def most(self) -> float:
        """Return an upper bound of every worth: the greatest key. Not when empty."""
        if self._new:
            self._take_in()
        keys = [entry.base for entry in self._near if not entry.stale]
        if self._head(self._heap) is not None:
            keys.append(self._heap[0].base)
        return -min(keys)

    def _head(self, heap: list[Entry[T]]) -> tuple[float, T] | None:
        while heap:
            entry = heap[0]
            if not entry.stale:
                return -entry.rank, entry.thing
            pop(heap)
        return None

    def _entry(self, thing: T, number: int) -> Entry[T]:
        key = -self._worth.key(thing)
        return Entry(thing, number, key, key)
