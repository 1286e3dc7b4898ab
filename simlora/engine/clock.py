"""Simulated time, and the order of things that happen at the same moment."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from heapq import heappop, heappush
from operator import attrgetter
from typing import Any

import simpy
from simpy.core import StopSimulation

ARRIVAL, FAILURE, STORE, PLACEMENT, SCALING, MIGRATION, BOUNDARY, STOP = (kind << 40 for kind in range(8))
"""Kinds of events: those at the same time happen in this order, and within a kind by id, which is below 2 ** 40."""
BEFORE_ALL, URGENT = -1, 0
"""The kinds of a run's end, and of what starts now, as SimPy's processes do."""


Callback = Callable[[Any], None]
"""Is called with the event that happens."""
Process = Generator[Any, None, None]
"""Yields the events that it waits for."""


class Moment:
    """An event that calls its `callbacks`: to SimPy's processes, one of its events that has succeeded.

    Without an __init__, as that costs as much as all the rest of it.
    """

    __slots__ = ("callbacks",)

    callbacks: list[Callback] | None
    _ok = True
    _value = None


class Clock(simpy.Environment):
    """A SimPy environment whose events lie at absolute times, ordered by (time, kind, id).

    SimPy's own timeouts are relative, and now + (t - now) is not t in floating point: an arrival
    could miss the iteration boundary that it shares its time with.
    """

    # As SimPy's own, but read in C: 4 % of a run's instructions.
    now: float = property(attrgetter("_now"))  # type: ignore[assignment]

    def run(self, until: float | None = None) -> None:  # type: ignore[override]
        """Process events until there are none left, or up to a time, whose own events are not processed.

        As SimPy's own, but one loop instead of a call a step.
        """
        queue = self._queue
        if until is not None:
            assert until >= self._now, f"the clock goes back from {self._now} to {until}"
            heappush(queue, (until, BEFORE_ALL, next(self._eid), self.never(_stop)))  # type: ignore[misc]
        try:
            while queue:
                self._now, _, _, event = heappop(queue)
                callbacks, event.callbacks = event.callbacks, None  # type: ignore[assignment]
                for callback in callbacks:
                    callback(event)
                if not event._ok:  # a process has ended with an exception
                    raise event._value
        except StopSimulation:
            return

    def moment(self, time_s: float, kind: int, id: int) -> Moment:
        """Return an event at `time_s`, to be waited for."""
        return self.call(time_s, kind, id, _nothing)

    def call(self, time_s: float, kind: int, id: int, callback: Callback) -> Moment:
        """Call a function with the event that happens at `time_s`; return the event."""
        assert time_s >= self._now, f"the clock goes back from {self._now} to {time_s}"
        event = Moment()
        event.callbacks = [callback]
        heappush(self._queue, (time_s, kind + id, next(self._eid), event))  # type: ignore[misc]
        return event

    def call_at(self, time_s: float, does: Callable[[], None], kind: int = STORE) -> None:
        """Call a function at a time, among the events of that kind."""
        self.call(time_s, kind, 0, lambda _: does())

    def stop(self) -> None:
        """Stop when all that happens at this moment has happened."""
        self.call(self._now, STOP, 0, _stop)

    def every(self, period_s: float, kind: int, ended: Callable[[], bool]) -> Iterator[Moment]:
        """Yield the next multiple of a period, to be waited for, until it has `ended`; those gone by are left out."""
        tick = 0
        while not ended():
            tick = max(tick, int(self._now // period_s)) + 1
            yield self.moment(tick * period_s, kind, 0)

    def move(self, event: Moment, time_s: float, kind: int, id: int) -> Moment:
        """Let what waits for `event` happen at `time_s` instead; the old event is void."""
        moved = self.call(time_s, kind, id, _nothing)
        moved.callbacks, event.callbacks = event.callbacks, []
        return moved

    def never(self, callback: Callback) -> Moment:
        """Return an event that does not happen unless it is moved to a time."""
        event = Moment()
        event.callbacks = [callback]
        return event


def _nothing(event: object) -> None:
    """What an event that is waited for calls besides."""


def _stop(event: object) -> None:
    raise StopSimulation(None)
