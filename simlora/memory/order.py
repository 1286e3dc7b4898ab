"""A priority queue of cached items by worth, where worth changes only with use and with time."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heapify, heappop, heappush
from typing import Final, Generic, TypeVar

T = TypeVar("T")
SPARE: Final = 64
"""Stale heap entries that are always tolerated: below this number the heap is not cleaned up."""


class Order(Generic[T]):
    """Items with the least, or the greatest, worth first; among equals the one put first.

    `key` is worth on a scale on which time lowers the worth of all items used long ago by the same amount. A recently
    used item is worth less than its key by `fade(thing, now)`, which decreases over time and never exceeds `most_fade`.
    An item is therefore never worth less than when it was last evaluated, nor more than its key, and only items that
    these bounds leave undecided are evaluated again. A put or a removal costs O(log n). `puts` counts the puts.
    """

    __slots__ = ("_fade", "_heap", "_key", "_least", "_live", "_near", "_near_s", "_slack", "puts")

    def __init__(
        self,
        key: Callable[[T], float],
        fade: Callable[[T, float], float] | None = None,
        most_fade: float = 0.0,
        least_first: bool = True,
    ) -> None:
        self._key, self._fade = key, fade
        self._least = least_first
        self._slack = most_fade if least_first else 0.0
        self._heap: list[tuple[float, int, T]] = []
        self._near: list[tuple[float, int, T]] = []  # taken from the heap to be compared as of `_near_s`
        self._near_s = -1.0
        self._live: dict[T, int] = {}
        self.puts = 0

    def __len__(self) -> int:
        return len(self._live)

    def __contains__(self, thing: T) -> bool:
        return thing in self._live

    def put(self, thing: T) -> None:
        """Insert an item, or update its key if it is present."""
        self.puts = number = self._live[thing] = self.puts + 1
        heappush(self._heap, (self._bound(thing), number, thing))
        if len(self._heap) > 2 * len(self._live) + SPARE:
            self._clear()

    def discard(self, thing: T) -> None:
        """Remove an item if it is present."""
        self._live.pop(thing, None)

    def first(self, now_s: float) -> tuple[float, T] | None:
        """Return the first item's current worth and the item; None if empty."""
        if self._fade is None:
            return self._first_of(self._heap)
        if now_s != self._near_s:
            for worth, number, thing in self._near:
                if self._live.get(thing) == number:
                    heappush(self._heap, (worth if self._least else -self._key(thing), number, thing))
            self._near.clear()
            self._near_s = now_s
        heap, near, live = self._heap, self._near, self._live
        found = self._first_of(near)
        while heap and (found is None or heap[0][:2] < near[0][:2]):
            _, number, thing = heappop(heap)
            if live.get(thing) == number:
                worth = self._key(thing) - self._fade(thing, now_s)
                heappush(near, (worth if self._least else -worth, number, thing))
                found = self._first_of(near)
        return found

    def most(self) -> float:
        """Return an upper bound of every worth; only for greatest first, and not when empty."""
        assert not self._least, "what is least may be worth anything yet"
        self._first_of(self._heap)
        heads = [self._heap[0][0]] if self._heap else []
        return -min(
            [
                *heads,
                *(-self._key(thing) for _, number, thing in self._near if self._live.get(thing) == number),
            ]
        )

    def _first_of(self, heap: list[tuple[float, int, T]]) -> tuple[float, T] | None:
        while heap:
            worth, number, thing = heap[0]
            if self._live.get(thing) == number:
                return (worth if self._least else -worth), thing
            heappop(heap)
        return None

    def _bound(self, thing: T) -> float:
        """Return the sort key of an item that was not evaluated yet."""
        key = self._key(thing)
        return key - self._slack if self._least else -key

    def _clear(self) -> None:
        self._heap = [entry for entry in self._heap if self._live.get(entry[2]) == entry[1]]
        heapify(self._heap)
