"""A binary heap of entries that are compared as numbers, which compiled code does in place."""

from __future__ import annotations

from typing import Generic, TypeVar

from mypy_extensions import i64

T = TypeVar("T")


class Entry(Generic[T]):
    """An item in a heap: the least `rank` is first, and among equals the least `number`.

    A `stale` entry stands for nothing any more. `base` is what the heap's owner keeps beside the rank.
    """

    __slots__ = ("base", "number", "rank", "stale", "thing")

    def __init__(self, thing: T, number: i64, rank: float, base: float) -> None:
        self.thing, self.number, self.rank, self.base, self.stale = thing, number, rank, base, False

    def precedes(self, other: Entry[T]) -> bool:
        """Return whether this entry comes before another one."""
        return self.rank < other.rank or (self.rank == other.rank and self.number < other.number)


def push(heap: list[Entry[T]], entry: Entry[T]) -> None:
    """Put an entry into a heap."""
    place: i64 = len(heap)
    heap.append(entry)
    while place > 0:
        parent = (place - 1) >> 1
        above = heap[parent]
        if above.precedes(entry):
            break
        heap[place] = above
        place = parent
    heap[place] = entry


def pop(heap: list[Entry[T]]) -> None:
    """Take the first entry out of a heap."""
    last = heap.pop()
    if heap:
        heap[0] = last
        sink(heap, 0)


def sink(heap: list[Entry[T]], place: i64) -> None:
    """Move the entry at a place to where it belongs: it may rank behind those below it."""
    entry = heap[place]
    count: i64 = len(heap)
    child: i64 = 2 * place + 1
    while child < count:
        below = heap[child]
        if child + 1 < count:
            other = heap[child + 1]
            if other.precedes(below):
                child, below = child + 1, other
        if entry.precedes(below):
            break
        heap[place] = below
        place = child
        child = 2 * place + 1
    heap[place] = entry


def clean(heap: list[Entry[T]]) -> None:
    """Take all stale entries out of a heap."""
    heap[:] = [entry for entry in heap if not entry.stale]
    place: i64 = len(heap) // 2
    while place > 0:
        place -= 1
        sink(heap, place)
