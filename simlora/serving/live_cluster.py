"""A driven simulation on the live clock: the same engine as offline, advanced as wall time goes on."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import asdict, replace
from math import inf
from typing import Any

from simlora.core.adapter import Adapter
from simlora.core.request import Request
from simlora.engine.cluster.driven import DrivenSimulation
from simlora.engine.cluster.submissions import Keep, Submitted
from simlora.engine.incidents import Failure, Incident
from simlora.engine.scenario import Scenario
from simlora.metrics.recorder import Recorder
from simlora.serving.alarm import Alarm
from simlora.serving.drift import Drift
from simlora.serving.live_clock import LiveClock
from simlora.serving.tallies import Tallies
from simlora.serving.ticket import CRASHED, FAILED, FINISHED, Ticket

log = logging.getLogger("simlora.serving")


class LiveCluster:
    """Advances a scenario to the wall clock's time whenever an event is due, or a request arrives.

    All of it happens in the event loop's thread: between two calls nothing changes. `number` is that of the first
    replica, where each replica has a port, and a simulation, of its own; `alone` says that it has. `on_submit` and
    `on_end` are called with each ticket when its request has arrived, and has ended; `on_event` with what else was
    asked for (load, leave, or a kind of incident), when, and its particulars.
    """

    def __init__(
        self,
        scenario: Scenario,
        clock: LiveClock,
        number: int = 0,
        alone: bool = False,
        keep: Keep = Keep.ROWS,
    ) -> None:
        cluster = replace(scenario.cluster, faults_on_request=True)
        self.clock, self.number, self.alone = clock, number, alone
        self.simulation = simulation = DrivenSimulation(
            replace(scenario, cluster=cluster, timeline=scenario.timeline and keep is not Keep.OPEN),
            self._on_token,
            keep,
        )
        self.scenario = simulation.scenario
        self.tallies = [Tallies(scenario.replica.prefix_caching) for _ in range(cluster.replicas)]
        self.drift = Drift(clock)
        self.crashed: Exception | None = None
        self.on_submit: tuple[Callable[[Ticket], None], ...] = ()
        self.on_end: tuple[Callable[[Ticket], None], ...] = ()
        self.on_event: tuple[Callable[[str, float, dict[str, Any]], None], ...] = ()
        self._served_as: dict[str, str] = {}  # by the engine's name, where that is another
        self._tickets: dict[int, Ticket] = {}
        self._told: list[Ticket] = []  # that stream, and were told tokens in this step
        self._alarm, self._alarm_s = Alarm(self._due), inf
        simulation.dispatcher.on_assign += (self._on_assign,)
        simulation.dispatcher.on_end += (self._on_finish,)
        simulation.recorder.on_lost += (self._on_lost,)

    @property
    def open_requests(self) -> int:
        """How many requests have not ended."""
        return len(self._tickets)

    def name_of(self, adapter: Adapter) -> str:
        """Return the name by which clients know an adapter."""
        return self._served_as.get(adapter.name, adapter.name)

    def preemptions(self) -> list[int]:
        """Return the preemptions of each replica's requests, by the replica that has them now or had them last."""
        found = [each.preemptions for each in self.tallies]
        for ticket in self._tickets.values():
            found[max(ticket.replica, 0)] += ticket.request.preemptions
        return found

    def retry_after_s(self, ticket: Ticket) -> int:
        """Return the wall seconds after which a request past its adapter's rate is to come back."""
        simulation = self.simulation
        limiter = simulation.dispatcher.rate_limiter
        assert limiter is not None, "no rate limit rejects requests"
        return limiter.retry_after_s(ticket.request, simulation.clock.now, self.clock.speed)

    @property
    def healthy(self) -> bool:
        """Whether the simulator runs, and a replica takes requests or will."""
        fleet = self.simulation.fleet
        if self.crashed is not None:
            return False
        return fleet.all_open or bool(fleet.open.any()) or (fleet.is_expected and not self.alone)

    # From outside -----------------------------------------------------------------------

    def submit(self, submitted: Submitted, streams: bool, limit_tokens: int) -> Ticket:
        """A request arrives now; with the first one, simulated time begins.

        Its client takes `limit_tokens` at most; the scheduler is told the longest answer that there could be.
        """
        self.clock.start()
        self.step()
        ticket = Ticket(submitted, streams, limit_tokens)
        if self.crashed is not None:
            ticket.end(CRASHED, str(self.crashed))
            return ticket
        ticket.request = request = self.simulation.submit(submitted)
        self._tickets[request.id] = ticket
        for listener in self.on_submit:
            listener(ticket)
        self._plan()
        return ticket

    def leave(self, ticket: Ticket) -> None:
        """The client of a request has gone."""
        if ticket.status or self.crashed is not None:
            return
        self.step()
        if not ticket.status:
            self._cancel(ticket)
            self._plan()

    def uses(self, adapter: int) -> bool:
        """Return whether weights of an adapter are in any memory, or a request that uses it has not ended."""
        asked = any(ticket.submitted.adapter == adapter for ticket in self._tickets.values())
        return asked or self.simulation.has_weights(adapter)

    def begin(self, kind: type[Incident], of: int, for_s: float | None, **more: float) -> None:
        """Something goes wrong now at a host or replica, for some simulated seconds; None: until it is ended.

        Raises InputError as `DrivenSimulation.begin` does, and for less time than the clock can tell.
        """
        self.clock.start()
        self.step()
        now_s = self.simulation.clock.now
        until_s = None if for_s is None else now_s + for_s
        incident = kind(**{kind.place: of, "at_s": now_s, "until_s": until_s}, **more)
        if self.alone and isinstance(incident, Failure):
            for ticket in self._tickets.values():
                ticket.end(FAILED, "the replica has failed")
        self.simulation.begin(incident)
        self._happened(kind.__name__.lower(), asdict(incident))  # type: ignore[call-overload]
        if self.alone and isinstance(incident, Failure):
            for ticket in list(self._tickets.values()):
                self._cancel(ticket)
        self._plan()

    def end(self, kind: type[Incident], of: int) -> None:
        """What is under way of a kind at a host or replica is over now."""
        if self.simulation.end(kind, of):
            self._happened("end", {"kind": kind.__name__.lower(), "of": of})
            self._plan()

    def add_adapter(self, name: str, rank: int, served_as: str) -> int:
        """Serve a further adapter; return its number. Raises InputError as `DrivenSimulation.add_adapter` does.

        Clients know it as `served_as`. `name` is the engine's: no other adapter has had it.
        """
        number = self.simulation.add_adapter(name, rank)
        if served_as != name:
            self._served_as[name] = served_as
        self._happened("load", {"name": name, "rank": rank})
        return number

    def close(self) -> Recorder:
        """Serve what is there at once, as if time went on, and return what was recorded."""
        self._alarm.cancel()
        self.step()
        return self.simulation.close()

    # Time -------------------------------------------------------------------------------

    def step(self) -> None:
        """Let everything happen that is due."""
        if self.crashed is not None:
            return
        simulation = self.simulation
        try:
            simulation.advance(max(self.clock.now_s(), simulation.clock.now))
        except Exception as error:
            log.exception("the simulator has stopped")
            self.crashed = error
            for ticket in self._tickets.values():
                ticket.end(CRASHED, f"{type(error).__name__}: {error}")
            self._tickets.clear()
        told, self._told = self._told, []
        for ticket in told:
            ticket.send_due()

    def _due(self) -> None:
        self._alarm_s = inf
        self.step()
        self._plan()

    def _plan(self) -> None:
        """Set the timer to the next event, unless it is; a request that arrives seldom changes that."""
        next_s = inf if self.crashed is not None else self.simulation.next_s()
        if next_s == self._alarm_s:
            return
        self._alarm_s = next_s
        if next_s < inf:
            self._alarm.set(self.clock.wait_s(next_s))
        else:
            self._alarm.cancel()

    # From the engine --------------------------------------------------------------------

    def _on_assign(self, replica: int, request: Request) -> None:
        ticket = self._tickets.get(request.id)
        if ticket is not None:
            ticket.assign(replica)

    def _on_token(self, request: Request, token: int, time_s: float) -> None:
        ticket = self._tickets.get(request.id)
        if ticket is None or token <= ticket.tokens:
            return  # its client is not told any more, or has this token from before a preemption
        tallies = self.tallies[ticket.replica]
        if ticket.tokens:
            tallies.gap(time_s - ticket.last_s)
        else:
            tallies.first_token(request, time_s, time_s - self.simulation.arrival_s(request))
        ticket.tell(token, time_s)
        if ticket.streams:
            self._told.append(ticket)

    def _on_finish(self, replica: int, request: Request) -> None:
        ticket = self._tickets.pop(request.id, None)
        if ticket is None:
            return
        arrival_s, tokens = self.simulation.arrival_s(request), self.simulation.output_tokens(request)
        limit, cut = ticket.limit_tokens, tokens < ticket.submitted.output_tokens
        self.tallies[replica].finished(request, tokens, limit, arrival_s, ticket.last_s, cut)
        self._end(ticket, FINISHED, "")

    def _on_lost(self, request: Request, status: int, reason: str) -> None:
        ticket = self._tickets.pop(request.id, None)
        if ticket is not None:
            self.tallies[max(ticket.replica, 0)].lost(request, status)
            self._end(ticket, status, reason)

    def _cancel(self, ticket: Ticket) -> None:
        self._happened("leave", {"request": ticket.request.id})
        self.simulation.cancel(ticket.request)

    def _happened(self, what: str, particulars: dict[str, Any]) -> None:
        for listener in self.on_event:
            listener(what, self.simulation.clock.now, particulars)

    def _end(self, ticket: Ticket, status: int, reason: str) -> None:
        ticket.end(status, reason)
        for listener in self.on_end:
            listener(ticket)
