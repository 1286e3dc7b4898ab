"""The dispatch of requests to replicas, and the listeners that are called when a replica gets a request or loses it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Final

import numpy as np

from simlora.core.adapter import Adapter
from simlora.core.request import Request
from simlora.engine.clock import ARRIVAL, URGENT, Event
from simlora.engine.cluster.fleet import Fleet, Ids
from simlora.engine.cluster.outstanding_limit import OutstandingLimit
from simlora.engine.cluster.rate_limiter import RateLimiter
from simlora.engine.cluster.routing import Routing
from simlora.engine.handoff import Handoff
from simlora.engine.parts.handoff import handing_over
from simlora.engine.replica.admission import unservable
from simlora.engine.replica.replica import Replica
from simlora.engine.replica_config import ReplicaConfig
from simlora.engine.scenario import Scenario
from simlora.metrics.recorder import Recorder

PROGRESS_EVERY: Final = 1024
"""Requests that end between two reports of progress."""

Listener = Callable[[int, Request], None]
"""Takes the number of a replica, and the request that it gets or no longer has."""


class Dispatcher:
    """Dispatches requests to the replicas that the router chooses, and keeps the fleet's `outstanding`.

    The other attributes are set once a run. The functions of a tuple are called in order; a mechanism that the run
    lacks is in none. `narrow`: each returns those of some replicas that may serve a request. `unservable` says why a
    request could never run where it was routed to. `on_unassigned`: one waits for a replica that is expected.
    `on_arrive`: a request arrives; `on_overflow`: it is rejected because of the `limit`. `on_assign`: a replica
    gets a request; `on_withdraw`: a replica no longer has a request, which has not ended; `on_end`: it has ended.
    `arrive` takes a request that arrives now. `give` hands a new request to its replica. `progress` is called now and
    then with the number of requests that have ended.
    """

    def __init__(self, scenario: Scenario, fleet: Fleet, routing: Routing, recorder: Recorder) -> None:
        self._clock, self._fleet, self._routing, self._recorder = fleet.clock, fleet, routing, recorder
        limited = scenario.cluster.max_outstanding is not None
        self.limit = OutstandingLimit(scenario.cluster, recorder) if limited else None
        self.arrive: Callable[[Request], None] = self._arrive
        self.rate_limiter: RateLimiter | None = None
        if scenario.cluster.adapter_rps is not None:
            self.rate_limiter = limiter = RateLimiter(scenario.cluster)
            self.arrive = partial(self._arrive_within, limiter)
        self._outstanding = fleet.outstanding.data  # one number is written faster so than through numpy
        self._dispatch: Callable[[Request], object] = self.dispatch
        self._arriving: Iterator[Request] = iter(())
        self._next: Request | None = None
        self._arrival = Event(ARRIVAL, 0, self._next_arrival)
        self.give: Callable[[Replica, Request], None] = Replica.submit
        self.progress: Callable[[int], None] = lambda ended: None
        self.narrow: tuple[Callable[[Ids, Request], Ids], ...] = ()
        self.unservable: Callable[[Request, Adapter | None, ReplicaConfig], str] = unservable
        self.on_unassigned: tuple[Callable[[], None], ...] = ()
        self.on_arrive: tuple[Callable[[Request], None], ...] = ()
        self.on_overflow: tuple[Listener, ...] = ()
        self.on_assign: tuple[Listener, ...] = ()
        self.on_withdraw: tuple[Listener, ...] = ()
        self.on_end: tuple[Listener, ...] = ()

    @property
    def has_listeners(self) -> bool:
        """Whether anything is called when a request arrives, is dispatched or ends."""
        return any(
            (
                self._routing.refresh,
                self.on_arrive,
                self.on_overflow,
                self.on_assign,
                self.on_withdraw,
                self.on_end,
            )
        )

    def let_wait(self, begin: Callable[[Request], object]) -> None:
        """Call this with each request that arrives and is not rejected; it has to `dispatch` the request later."""
        self._dispatch = begin

    def play(self, requests: Iterable[Request]) -> None:
        """Dispatch each request at its arrival; they are in order of time."""
        self._arriving = iter(requests)
        self._clock.call(self._clock.now, URGENT, 0, self._next_arrival)

    def _next_arrival(self) -> None:
        """Dispatch the request that arrives now, except at the first call, and schedule the next arrival."""
        if self._next is not None:
            self.arrive(self._next)
        request = self._next = next(self._arriving, None)
        if request is not None:
            self._arrival.key = ARRIVAL + request.id
            self._clock.schedule(self._arrival, request.arrival_s)

    def _arrive_within(self, limiter: RateLimiter, request: Request) -> None:
        """A request arrives; one past its adapter's rate is rejected before anything else hears of it."""
        reason = limiter.refusal(request, self._clock.now)
        if reason:
            self._recorder.reject(request, -1, self._clock.now, reason)
        else:
            self._arrive(request)

    def _arrive(self, request: Request) -> None:
        for listener in self.on_arrive:
            listener(request)
        if self.limit is None or not self._overflows(self.limit, request):
            self._dispatch(request)

    def _overflows(self, limit: OutstandingLimit, request: Request) -> bool:
        """Reject a request if as many others are there as the cluster takes; return whether it is rejected."""
        reason = limit.refusal(request)
        if reason:
            self._recorder.reject(request, -1, self._clock.now, reason)
            for listener in self.on_overflow:
                listener(-1, request)
        return bool(reason)

    def dispatch(self, request: Request, handoff: Handoff | None = None) -> int | None:
        """Give a request to the replica that the router chooses; return which, None: none now, or ever.

        With a `handoff`, it was dispatched before.
        """
        candidates = self._fleet.everywhere
        for narrow in self.narrow:
            candidates = narrow(candidates, request)
            if not candidates.size:
                self._without_candidates(request, handoff)
                return None
        chosen = self._routing.choose(request, candidates)
        replica = self._fleet.replicas[chosen]
        self._fleet.bind(request, chosen)
        reason = self.unservable(request, request.adapter, replica.config)
        if reason:
            self._recorder.reject(request, chosen, self._clock.now, reason)
            return None
        self._outstanding[chosen] += 1
        for assigned in self.on_assign:
            assigned(chosen, request)
        if handoff is None:
            self.give(replica, request)
        else:
            handing_over(replica).receive(handoff, -1)
        return chosen

    def candidates(self, request: Request) -> Ids:
        """Return the replicas that may serve a request."""
        found = self._fleet.everywhere
        for narrow in self.narrow:
            found = narrow(found, request)
        return found

    def _without_candidates(self, request: Request, handoff: Handoff | None) -> None:
        """No replica may serve a request now: it waits for one that is expected, or is rejected.

        If some are open, they do not hold its adapter's rank. Then only failed hosts that come back are waited for, as
        an autoscaler does not look at ranks.
        """
        fleet, some_open = self._fleet, bool(self._fleet.open.any())
        if fleet.returning > 0 if some_open else fleet.is_expected:
            fleet.unassigned.append(handoff or Handoff(request))
            for unassigned in self.on_unassigned:
                unassigned()
            return
        reason = f"no replica is left that holds rank {request.rank}" if some_open else "no replica is left"
        self._recorder.reject(request, -1, self._clock.now, reason)

    def end(self, replica: int, request: Request) -> None:
        """A request has ended at a replica."""
        self._outstanding[replica] -= 1
        for listener in self.on_end:
            listener(replica, request)
        if self._recorder.ended % PROGRESS_EVERY == 0:
            self.progress(self._recorder.ended)

    def withdraw(self, replica: int, request: Request) -> None:
        """A replica no longer has a request, which has not ended."""
        self._outstanding[replica] -= 1
        for listener in self.on_withdraw:
            listener(replica, request)

    def transfer(self, handoff: Handoff, source: int, target: int) -> None:
        """A request goes from one replica to another, at a boundary of the first."""
        self.withdraw(source, handoff.request)
        self.assign(handoff, source, target)

    def assign(self, handoff: Handoff, source: int, target: int) -> None:
        """A replica gets a request that another no longer has, at a boundary of that one."""
        self.promise(handoff.request, target)
        self.deliver(handoff, source, target)

    def promise(self, request: Request, target: int) -> None:
        """Count a request as one of a replica that gets it, now or later."""
        self._outstanding[target] += 1
        self._fleet.bind(request, target)
        for listener in self.on_assign:
            listener(target, request)

    def deliver(self, handoff: Handoff, source: int, target: int) -> None:
        """Give a replica a request that was promised to it, at a boundary of the one that no longer has it."""
        self._fleet.bind(handoff.request, target)
        handing_over(self._fleet.replicas[target]).receive(handoff, source)

    def dispatch_pending(self) -> None:
        """Dispatch the unassigned requests again, as a replica is open, or is not expected any more."""
        pending, self._fleet.unassigned = self._fleet.unassigned, []
        for handoff in pending:
            self.dispatch(handoff.request, handoff)


def large_enough(scenario: Scenario, fleet: Fleet, replicas: Ids, request: Request) -> Ids:
    """Return those of some replicas whose kind could serve a request; all of them if none could."""
    could = [
        not unservable(request, fleet.adapter_of(request, first), kind.replica)
        for first, kind in zip(scenario.firsts, scenario.kinds, strict=True)
    ]
    if all(could):
        return replicas
    found = replicas[np.array(could)[scenario.kind_of[replicas]]]
    return found if len(found) else replicas
