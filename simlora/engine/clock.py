"""Simulated time, and the order of things that happen at the same moment."""

from __future__ import annotations

from collections.abc import Callable, Generator
from heapq import heappop, heappush
from itertools import count
from typing import NamedTuple

from mypy_extensions import mypyc_attr

ARRIVAL, FAILURE, STORE, PLACEMENT, SCALING, MIGRATION, BOUNDARY, STOP = (kind << 40 for kind in range(8))
"""Kinds of events: those at the same time happen in this order, and within a kind by id, which is below 2 ** 40."""
BEFORE_ALL, URGENT = -1, 0
"""The kinds of a run's end, and of a process that starts now."""

Event = list[Callable[[], None]]
"""What is called when an event happens; a cleared event is cancelled."""


class Moment(NamedTuple):
    """When a process goes on: among the events at `time_s` by kind and id."""

    time_s: float
    kind: int
    id: int


Process = Generator[Moment, None, None]


class _Stopped(Exception):
    """The run is over before its events are."""


@mypyc_attr(allow_interpreted_subclasses=True)
class Clock:
    """Events at absolute times, ordered by (time, kind, id), and then as they were scheduled.

    Times are absolute, as now + (t - now) is not t in floating point: an arrival could miss the iteration boundary that
    it shares its time with.
    """

    def __init__(self) -> None:
        self.now = 0.0
        self._queue: list[tuple[float, int, int, Event]] = []
        self._scheduled = count()

    def run(self, until_s: float | None = None) -> None:
        """Process events until there are none left, or up to a time, whose own events are not processed."""
        queue = self._queue
        if until_s is not None:
            self.call(until_s, BEFORE_ALL, 0, self._stop)
        try:
            while queue:
                self.now, _, _, event = heappop(queue)
                for callback in event:
                    callback()
        except _Stopped:
            return

    def call(self, time_s: float, kind: int, id: int, callback: Callable[[], None]) -> Event:
        """Schedule a callback; return its event."""
        assert time_s >= self.now, f"the clock goes back from {self.now} to {time_s}"
        event = [callback]
        heappush(self._queue, (time_s, kind + id, next(self._scheduled), event))
        return event

    def move(self, event: Event, time_s: float, kind: int, id: int) -> Event:
        """Let an event happen at `time_s` instead; return it, as the old one is cancelled."""
        assert time_s >= self.now, f"the clock goes back from {self.now} to {time_s}"
        moved = event.copy()
        event.clear()
        heappush(self._queue, (time_s, kind + id, next(self._scheduled), moved))
        return moved

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

    def stop(self) -> None:
        """Stop when everything has happened that happens at this moment."""
        self.call(self.now, STOP, 0, self._stop)

    def _stop(self) -> None:
        raise _Stopped
