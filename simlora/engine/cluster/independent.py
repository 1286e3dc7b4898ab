"""Replicas that do not affect each other, simulated one after the other.

A slice of time is simulated for one replica and then for the next, so that a replica's data stay in the CPU's caches.
No event of one replica changes what another does, so the order of both does not matter: the result is the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from simlora.core.request import Request
from simlora.engine.clock import ARRIVAL, Clock, Event
from simlora.engine.cluster.outcome import Outcome, outcome
from simlora.engine.replica.ending import finalize
from simlora.engine.replica.replica import Replica
from simlora.engine.scenario import Scenario
from simlora.policies.routing.base import Router

SLICE: Final = 1 << 16
"""Requests of a slice of time at most,"""
SLICE_A_REPLICA: Final = 512
"""and as many for each replica: an interrupt waits for the end of a slice."""
DRAIN: Final = 1.0625
"""How many times as late each slice ends as the one before, when no more requests come."""
BUCKETS_PER_S: Final = 1.0
"""Of the clock, for the few events of one replica."""


def independent(scenario: Scenario, replicas: Sequence[Replica]) -> bool:
    """Whether no replica affects another, and the router looks at none."""
    cluster, policies = scenario.cluster, scenario.policies
    periodic = (policies.migration, policies.placement, scenario.scaling.autoscaler)
    connected = (
        not is_blind(policies.router),
        policies.assists,  # hosts have CPU cores for all of their replicas
        policies.merges,  # the time with merged adapters is summed over replicas in order of time
        cluster.engines_per_gpu > 1,
        cluster.status_every_s is not None,
        cluster.max_outstanding is not None,
        cluster.adapter_pool == "distributed",
        cluster.failures,
        cluster.stragglers,
        cluster.slow_links,
        scenario.until_missed is not None,
        scenario.tracing,
        scenario.parts,
        any(policy.period_s is not None for policy in periodic),
        # They go on until the last request of all replicas has ended.
        any(part.outlives_requests for replica in replicas for part in replica.hooks.bounds),
    )
    return len(replicas) > 1 and not any(connected)


def is_blind(router: Router) -> bool:
    """Whether a router says that it is blind where it says how it routes: a subclass may route otherwise."""
    routes = next(kind for kind in type(router).__mro__ if "route" in vars(kind))
    return bool(vars(routes).get("blind", False))


class Turns:
    """Advances some replicas in turn, all of them to the same time; `advance` starts them when it is first called.

    They share the clock, which begins anew for each.
    """

    def __init__(self, clock: Clock, replicas: Sequence[Replica]) -> None:
        self._clock, self._now_s = clock, 0.0
        self._courses = {replica.id: Course(replica) for replica in replicas}
        self._started = False

    def give(self, replica: Replica, request: Request) -> None:
        """Have a request arrive at a replica within the slice of time that comes next; in order of time."""
        self._courses[replica.id].arriving.append(request)

    def advance(self, until_s: float | None) -> None:
        """Let everything happen that happens before that time; None: everything."""
        clock = self._clock
        for course in self._courses.values():
            if self._started and course.is_idle:
                continue
            clock.restart(self._now_s, BUCKETS_PER_S)
            if not self._started:
                course.replica.start()
            course.resume()
            clock.run(until_s)
            course.pause()
        self._started = True
        if until_s is not None:
            clock.now = self._now_s = until_s

    @property
    def busy(self) -> bool:
        """Whether a replica has something scheduled."""
        return not all(course.is_idle for course in self._courses.values())

    def end(self, finalizes: bool) -> list[Outcome]:
        """Record the requests that run, if it `finalizes`; return what the replicas have done."""
        replicas = [course.replica for course in self._courses.values()]
        if finalizes:
            for replica in replicas:
                finalize(replica)
        return list(map(outcome, replicas))

    def close(self) -> None:
        """There is nothing to end."""


class Course:
    """A replica between two slices of time: the requests that come, and when it has its next boundary, if it has one.

    That boundary is the only event that a replica has scheduled.
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
        """Take the next boundary off the clock; all requests that were to come have arrived."""
        assert self._next == len(self.arriving), "a request has not arrived in its slice of time"
        self.arriving.clear()
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
