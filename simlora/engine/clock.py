"""Simulated time, and the order of things that happen at the same moment."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from heapq import heappush
from operator import attrgetter

import simpy

ARRIVAL, FAILURE, STORE, PLACEMENT, SCALING, MIGRATION, BOUNDARY, STOP = (kind << 40 for kind in range(8))
"""Kinds of events: those at the same time happen in this order, and within a kind by id, which is below 2 ** 40."""


class Moment(simpy.Event):
    """Something that happens at an absolute time, as certain as a SimPy timeout."""

    def __init__(self, clock: Clock) -> None:
        self.env = clock
        self.callbacks = []
        self._ok = True
        self._value = None


class Clock(simpy.Environment):
    """A SimPy environment whose events lie at absolute times, ordered by (time, kind, id).

    SimPy's own timeouts are relative, and now + (t - now) is not t in floating point: an arrival
    could miss the iteration boundary that it shares its time with.
    """

    # As SimPy's own, but read in C: 4 % of a run's instructions.
    now: float = property(attrgetter("_now"))  # type: ignore[assignment]

    def moment(self, time_s: float, kind: int, id: int) -> Moment:
        """Return an event at `time_s`, to be waited for or given callbacks."""
        assert time_s >= self._now, f"the clock goes back from {self._now} to {time_s}"
        event = Moment(self)
        heappush(self._queue, (time_s, kind + id, next(self._eid), event))  # type: ignore[misc]
        return event

    def span(self, from_s: float, until_s: float | None, kind: int, id: int) -> tuple[Moment, Moment | None]:
        """Return the events at which something begins and ends; None: it does not.

        Of spans that are asked for in the order of time one is over before the next begins at the same moment.
        """
        begins = self.moment(from_s, kind, id)
        return begins, None if until_s is None else self.moment(until_s, kind, id)

    def call_at(self, time_s: float, does: Callable[[], None]) -> None:
        """Call a function at a time, among the events of kind STORE."""
        moment = self.moment(time_s, STORE, 0)
        assert moment.callbacks is not None, "nothing has happened yet"
        moment.callbacks.append(lambda _: does())

    def stop(self) -> None:
        """Stop when all that happens at this moment has happened."""
        moment = self.moment(self._now, STOP, 0)
        assert moment.callbacks is not None, "nothing has happened yet"
        moment.callbacks.append(simpy.core.StopSimulation.callback)

    def every(self, period_s: float, kind: int, ended: Callable[[], bool]) -> Iterator[Moment]:
        """Yield the next multiple of a period, to be waited for, until it has `ended`; those gone by are left out."""
        tick = 0
        while not ended():
            tick = max(tick, int(self._now // period_s)) + 1
            yield self.moment(tick * period_s, kind, 0)

    def move(self, event: simpy.Event, time_s: float, kind: int, id: int) -> Moment:
        """Let what waits for `event` happen at `time_s` instead; the old event is void."""
        moved = self.moment(time_s, kind, id)
        moved.callbacks, event.callbacks = event.callbacks, []
        return moved
