"""Independent replicas, simulated one after the other.

A slice of time is simulated for one replica and then for the next, so that a replica's data stay in the CPU's caches.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from simlora.core.request import Request
from simlora.engine.clock import ARRIVAL, Clock, Event
from simlora.engine.cluster.outcome import Outcome, outcome
from simlora.engine.replica.ending import finalize
from simlora.engine.replica.replica import Replica

BUCKETS_PER_S: Final = 1.0
"""Of the clock, for the few events of one replica."""


class Turns:
    """Advances some replicas in turn, all of them to the same time; `advance` starts them when it is first called.

    They share the clock, which begins anew for each.
    """

    def __init__(self, clock: Clock, replicas: Sequence[Replica]) -> None:
        self._clock, self._now_s = clock, 0.0
        self._turns = {replica.id: ReplicaTurn(replica) for replica in replicas}
        self._started = False

    def give(self, replica: Replica, request: Request) -> None:
        """Have a request arrive at a replica, not before the time that was reached; in order of time."""
        self._turns[replica.id].arriving.append(request)

    def advance(self, until_s: float | None) -> None:
        """Let everything happen that happens before that time; None: everything."""
        clock = self._clock
        for turn in self._turns.values():
            if self._started and turn.is_idle:
                continue
            clock.restart(self._now_s, BUCKETS_PER_S)
            if not self._started:
                turn.replica.start()
            turn.resume()
            clock.run(until_s)
            turn.pause()
        self._started = True
        if until_s is not None:
            clock.now = self._now_s = until_s

    @property
    def busy(self) -> bool:
        """Whether a replica has something scheduled."""
        return not all(turn.is_idle for turn in self._turns.values())

    def end(self, finalizes: bool) -> list[Outcome]:
        """Record the requests that run, if it `finalizes`; return what the replicas have done."""
        replicas = [turn.replica for turn in self._turns.values()]
        if finalizes:
            for replica in replicas:
                finalize(replica)
        return list(map(outcome, replicas))

    def close(self) -> None:
        """There is nothing to close."""


class ReplicaTurn:
    """What a replica has ahead of it between two slices of time: requests that come, and its next boundary, if any.

    That boundary is the only event that a replica schedules.
    """

    def __init__(self, replica: Replica) -> None:
        self.replica = replica
        self.arriving: list[Request] = []
        self._clock = replica.clock
        self._next = 0
        self._arrival = Event(ARRIVAL, 0, self._arrive)
        self._wake_s = -1.0

    @property
    def is_idle(self) -> bool:
        """Whether the replica has nothing scheduled, and no request comes."""
        return self._wake_s < 0.0 and not self.arriving

    def resume(self) -> None:
        """Schedule the next boundary and the first arrival."""
        if self._wake_s >= 0.0:
            self._clock.schedule(self.replica.wake_event, self._wake_s)
        self._expect()

    def pause(self) -> None:
        """Take both off the clock; a request that arrives when the slice ends comes in the next."""
        self._clock.cancel(self._arrival)
        del self.arriving[: self._next]
        self._next = 0
        event = self.replica.wake_event
        self._wake_s = event.time_s if event.bucket is not None else -1.0
        self._clock.cancel(event)

    def _expect(self) -> None:
        """Schedule the next arrival, if a request is to come."""
        if self._next < len(self.arriving):
            request = self.arriving[self._next]
            self._arrival.key = ARRIVAL + request.id
            self._clock.schedule(self._arrival, request.arrival_s)

    def _arrive(self) -> None:
        self.replica.submit(self.arriving[self._next])
        self._next += 1
        self._expect()
