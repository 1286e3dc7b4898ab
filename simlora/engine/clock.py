"""Simulated time, and the order of things that happen at the same moment."""

from __future__ import annotations

from collections.abc import Callable, Generator
from math import inf
from typing import Final, NamedTuple

from mypy_extensions import i64

# Kinds of events: those at the same time happen in this order, and within a kind by id, which is below 2 ** 40.
BEFORE_ALL: Final = -1  # a run's end
URGENT: Final = 0  # a process that starts now
ARRIVAL: Final = 0
FAILURE: Final = 1 << 40
STORE: Final = 2 << 40
PLACEMENT: Final = 3 << 40
SCALING: Final = 4 << 40
MIGRATION: Final = 5 << 40
BOUNDARY: Final = 6 << 40
ANSWERS: Final = 7 << 40  # to a dispatch that has asked all replicas
STOP: Final = 8 << 40
BUCKETS: Final = 2048
"""A power of two."""
MASK: Final = BUCKETS - 1
FAR: Final = 2.0**52
"""No bucket has this number: the numbers of buckets are exact as floats."""


class Event:
    """Calls a callback at `time_s`, if it is scheduled; `bucket` is then the list in which the clock keeps it."""

    __slots__ = ("bucket", "callback", "key", "time_s")

    def __init__(self, kind: int, id: int, callback: Callable[[], None]) -> None:
        self.time_s = 0.0
        self.key: i64 = kind + id
        self.callback = callback
        self.bucket: list[Event] | None = None


class Moment(NamedTuple):
    """When a process goes on: among the events at `time_s` by kind and id."""

    time_s: float
    kind: int
    id: int


Process = Generator[Moment, None, None]


class Clock:
    """Events at absolute times, ordered by (time, kind, id), and then as they were scheduled.

    Times are absolute, as now + (t - now) is not t in floating point: an arrival could miss the iteration boundary that
    it shares its time with.

    Events of the next BUCKETS / `buckets_per_s` seconds lie in a ring of buckets, so that the cost of an event hardly
    depends on how many are scheduled. Later ones are in one list. Each list is in order, the next event at its end.
    """

    def __init__(self, buckets_per_s: float = 1.0) -> None:
        self.now = 0.0
        self._buckets_per_s = buckets_per_s
        self._ring: list[list[Event]] = [[] for _ in range(BUCKETS)]
        self._far: list[Event] = []
        self._soon = self._ring[0]  # the bucket in which now lies, with the next events if it has any
        self._number: i64 = 0  # of that bucket
        self._horizon = float(BUCKETS)  # the number of the first bucket that the ring has not got yet
        self._stopped = False

    def restart(self, now_s: float, buckets_per_s: float) -> None:
        """Begin anew at a time, also an earlier one; nothing may be scheduled."""
        assert not [*self._soon, *self._far], "a clock is started anew, and events are scheduled"
        self.now, self._buckets_per_s = now_s, buckets_per_s
        self._number = int(min(now_s * buckets_per_s, FAR))
        self._horizon = float(self._number + BUCKETS)
        self._soon = self._ring[self._number & MASK]

    def run(self, until_s: float | None = None) -> None:
        """Process events until there are none left, or up to a time, whose own events are not processed."""
        self._stopped = False
        if until_s is not None:
            self.call(until_s, BEFORE_ALL, 0, self._stop)
        while not self._stopped and (self._soon or self._advance()):
            event = self._soon.pop()
            event.bucket = None
            self.now = event.time_s
            event.callback()

    def call(self, time_s: float, kind: int, id: int, callback: Callable[[], None]) -> Event:
        """Schedule a callback; return its event."""
        event = Event(kind, id, callback)
        self.schedule(event, time_s)
        return event

    def schedule(self, event: Event, time_s: float) -> None:
        """Let an event happen at `time_s`; it may be scheduled for another time, or have happened before."""
        assert time_s >= self.now, f"the clock goes back from {self.now} to {time_s}"
        if event.bucket is not None:
            self.cancel(event)
        event.time_s = time_s
        place = time_s * self._buckets_per_s
        if place < self._horizon:
            number: i64 = int(place)
            bucket = self._ring[number & MASK]
        else:
            bucket = self._far
        event.bucket = bucket
        # Events that share time and key happen as they were scheduled, so this one comes before all of its equals.
        if not bucket or bucket[-1].time_s > time_s:
            bucket.append(event)
        else:
            bucket.insert(_place(bucket, event), event)

    def cancel(self, event: Event) -> None:
        """Let an event not happen, if it is scheduled."""
        bucket = event.bucket
        if bucket is None:
            return
        place = _place(bucket, event)
        while bucket[place] is not event:
            place += 1
        del bucket[place]
        event.bucket = None

    def process(self, moments: Process) -> None:
        """Start a generator now, and resume it at each moment that it yields."""

        def resume() -> None:
            for time_s, kind, id in moments:
                self.call(time_s, kind, id, resume)
                return

        self.call(self.now, URGENT, 0, resume)

    def every(self, period_s: float, kind: int, ended: Callable[[], bool]) -> Process:
        """Yield the next multiple of a period until it has `ended`; multiples that have passed are left out."""
        tick = 0
        while not ended():
            tick = max(tick, int(self.now // period_s)) + 1
            yield Moment(tick * period_s, kind, 0)

    def next_s(self) -> float:
        """Return the time of the next event; inf: nothing is scheduled."""
        if self._soon:
            return self._soon[-1].time_s
        first_s, number, end = inf, self._number + 1, self._number + BUCKETS
        while number < end and first_s == inf:
            if bucket := self._ring[number & MASK]:
                first_s = bucket[-1].time_s
            number += 1
        return min(first_s, self._far[-1].time_s) if self._far else first_s

    def stop(self) -> None:
        """Stop when everything has happened that happens at this moment."""
        self.call(self.now, STOP, 0, self._stop)

    def _stop(self) -> None:
        self._stopped = True

    def _advance(self) -> bool:
        """Go to the next bucket that has events; return whether there is one."""
        ring, far, number, end = self._ring, self._far, self._number + 1, self._number + BUCKETS
        while number < end and not ring[number & MASK]:
            number += 1
        if far:
            first = far[-1].time_s * self._buckets_per_s
            if number == end and first >= FAR:  # as are all events from now on
                self._soon = far
                return True
            if number == end or first < float(number):
                number = int(first)
        elif number == end:
            return False
        self._number, self._horizon = number, float(number + BUCKETS)
        self._soon = ring[number & MASK]
        if far and first < float(number + 1):
            self._take_far()
        return True

    def _take_far(self) -> None:
        """Put the far events of the bucket in which now lies into it."""
        far, later = self._far, self._soon
        begin = len(far)
        while begin and far[begin - 1].time_s * self._buckets_per_s < float(self._number + 1):
            begin -= 1
        self._soon = self._ring[self._number & MASK] = far[begin:]
        del far[begin:]
        for event in self._soon:
            event.bucket = self._soon
        # Of equals, those in `far` were scheduled earlier: when the ring did not reach so far.
        while later:
            self.schedule(later[-1], later[-1].time_s)


def _place(bucket: list[Event], event: Event) -> int:
    """Return where an event comes among those of a bucket: before its equals."""
    time_s, key = event.time_s, event.key
    low: i64 = 0
    high: i64 = len(bucket)
    while low < high:
        middle = (low + high) >> 1
        other = bucket[middle]
        if other.time_s > time_s or (other.time_s == time_s and other.key > key):
            low = middle + 1
        else:
            high = middle
    return low
