"""A run that is driven from outside: requests are submitted as they come, and time is advanced step by step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from math import inf, nextafter
from typing import ClassVar, Final

from simlora.core.checks import number, whole
from simlora.core.errors import InputError
from simlora.core.request import Request
from simlora.core.trace import BASE_MODEL, AdapterSpec, Trace
from simlora.engine.clock import ARRIVAL, Event
from simlora.engine.cluster.front_end import FrontEnd
from simlora.engine.cluster.further_adapters import FurtherAdapters
from simlora.engine.cluster.simulation import Simulation
from simlora.engine.cluster.submissions import Keep, Submissions, Submitted
from simlora.engine.incidents import Failure, Incident
from simlora.engine.parts.reporting import OnToken, TokenStream
from simlora.engine.replica.cancelling import REASON, cancel
from simlora.engine.scenario import Scenario
from simlora.metrics.recorder import Recorder

FORGOTTEN_TOGETHER: Final = 4096
"""Requests that end between two times that ended ones are forgotten."""


class DrivenSimulation(Simulation):
    """Serves requests that are submitted, as a live server does.

    `submit` requests, `advance` the clock, and `close` after the last one: the result is that of a run of their trace.
    Of the scenario's trace only the adapters, their history and the size of hashed blocks count. `on_token` is called
    with every token at its time, and may submit. Until `close`, periodic policies and parts go on without requests too.
    `keep` says what stays in memory of requests that have ended; with Keep.OPEN there is no `trace`, and `close` leaves
    no rows.
    """

    driven: ClassVar[bool] = True
    hands_over: ClassVar[bool] = False
    """Whether prefill and decode may be apart; no request may be cancelled then."""

    def __init__(self, scenario: Scenario, on_token: OnToken | None = None, keep: Keep = Keep.ALL) -> None:
        if scenario.until_missed is not None:
            raise InputError(
                "until_missed counts the requests of a trace, and these are submitted; leave it out"
            )
        if scenario.cluster.prefill_replicas and not self.hands_over:
            raise InputError(
                "cluster.prefill_replicas is for requests of a trace, and these are submitted; leave it out"
            )
        if on_token is not None:
            stream = partial(TokenStream, on_token=on_token)
            scenario = replace(scenario, parts=(stream, *scenario.parts))
        self._submissions = Submissions(keep)
        super().__init__(scenario)
        self._arriving: dict[int, Event] = {}  # requests that the front end has not let through, by id
        self._front_end = FrontEnd(scenario)
        self._further = FurtherAdapters(self)
        self._closed = self._advancing = False
        self._forgets_at = FORGOTTEN_TOGETHER  # requests that have ended
        self._start(())

    def _true_outputs(self) -> Sequence[int]:
        return self._submissions.output_tokens

    # Requests ---------------------------------------------------------------------------

    def submit(self, submitted: Submitted, arrival_s: float | None = None) -> Request:
        """A request arrives at that time, or now; return it.

        Submitted by a listener, while events of this moment are processed, it arrives at the next larger number: the
        boundary that caused it is over, as it is when the trace is played. Raises InputError for an arrival in the
        past, for tokens, an adapter or hashes that cannot be, and after `close`.
        """
        now_s = nextafter(self.clock.now, inf) if self._advancing else self.clock.now
        least_s = max(now_s, self._submissions.last_s)
        at_s = number("arrival_s", now_s if arrival_s is None else arrival_s, "s", least=least_s)
        if self._closed:
            raise InputError("a request is submitted to a run that is closed, must come before close")
        if submitted.block_hashes and not self.scenario.trace.has_hashes:
            raise InputError(
                "block_hashes need a scenario whose trace has some, which sets the tokens of a block"
            )
        whole("prompt_tokens", submitted.prompt_tokens, "tokens", least=1)
        whole("output_tokens", submitted.output_tokens, "tokens", least=1)
        whole("adapter", submitted.adapter, least=BASE_MODEL, most=len(self.adapters) - 1)
        most = submitted.output_tokens if submitted.max_output_tokens is None else submitted.max_output_tokens
        whole("max_output_tokens", most, "tokens", least=submitted.output_tokens)
        return self._submit(submitted, at_s)

    def _submit(self, submitted: Submitted, at_s: float) -> Request:
        """A request that can be arrives at a time that has not been."""
        most = submitted.output_tokens if submitted.max_output_tokens is None else submitted.max_output_tokens
        adapter = None if submitted.adapter == BASE_MODEL else self.adapters[submitted.adapter]
        request = Request(
            len(self._submissions),
            adapter,
            self._front_end.enter(at_s, adapter),
            submitted.prompt_tokens,
            most,
            submitted.session,
            submitted.block_hashes,
        )
        self._submissions.add(at_s, submitted, most)
        arrives = partial(self._arrive, request)
        self._arriving[request.id] = self.clock.call(request.arrival_s, ARRIVAL, request.id, arrives)
        return request

    def _arrive(self, request: Request) -> None:
        del self._arriving[request.id]
        self.dispatcher.arrive(request)

    def cancel(self, request: Request) -> None:
        """The client of a request has gone, which ends it as `engine/replica/cancelling.py` says.

        A request that has ended stays as it is. Raises InputError while events are processed.
        """
        if self._advancing:
            raise InputError("a request is cancelled while events are processed, must be between them")
        self._cancel(request)

    def _cancel(self, request: Request) -> None:
        arriving = self._arriving.pop(request.id, None)
        if arriving is not None:
            self.clock.cancel(arriving)
            if self.dispatcher.limit is not None:
                self.dispatcher.limit.leave_early(request)
            self.recorder.abort(request, -1, self.clock.now, REASON)
            return
        for replica in self.fleet.replicas:
            if cancel(replica, request, self._submissions.output_tokens):
                return
        unassigned = self.fleet.unassigned
        if any(handoff.request is request for handoff in unassigned):
            self.fleet.unassigned = [handoff for handoff in unassigned if handoff.request is not request]
            self.recorder.abort(request, -1, self.clock.now, REASON)

    def arrival_s(self, request: Request) -> float:
        """Return when a request was submitted for; its `arrival_s` is when the front end is through with it."""
        return float(self._submissions.arrival_s[request.id])

    def output_tokens(self, request: Request) -> int:
        """Return a request's true output length: fewer than submitted if its client has gone."""
        return int(self._submissions.output_tokens[request.id])

    # The cluster ------------------------------------------------------------------------

    def add_adapter(self, name: str, rank: int) -> int:
        """Serve a further adapter from now on; return its index.

        Its weights are loaded when a request needs them. Raises InputError for a name that is known, a rank that no
        replica holds, and where a mechanism divides the adapters before the run.
        """
        return self._further.add(AdapterSpec(name, rank))

    def has_weights(self, adapter: int) -> bool:
        """Return whether the memory of any replica or its host has weights of an adapter that it had to read."""
        replicas = self.fleet.replicas
        return any(
            replica.kv.adapters.holds(adapter) or replica.host_link.holds(adapter) for replica in replicas
        )

    def begin(self, incident: Incident) -> None:
        """Something goes wrong now, which is over at the incident's `until_s`, if it has one.

        A slowdown takes the place of one that is under way at the same replica or links. Raises InputError for a
        place that is not there, or whose host has failed already, and without the cluster's `faults_on_request`.
        """
        cluster = self.scenario.cluster
        if not cluster.faults_on_request:
            raise InputError(f"{incident.key} is asked for, which needs the cluster's faults_on_request")
        count = cluster.replicas if incident.place == "replica" else cluster.hosts
        whole(incident.place, incident.of, least=0, most=count - 1)
        if isinstance(incident, Failure) and not self.fleet.alive[cluster.replicas_of(incident.host)].all():
            raise InputError(f"host {incident.host} has failed already, must be back before it fails again")
        self.faults.begin(incident)

    def end(self, kind: type[Incident], of: int) -> bool:
        """End an incident of a kind at a host or replica now, before its time; return whether one was under way."""
        return self.faults.end(kind, of)

    # Time -------------------------------------------------------------------------------

    def next_s(self) -> float:
        """Return the time of the next event, before which nothing happens; inf: there is none."""
        return self.clock.next_s()

    def advance(self, to_s: float) -> None:
        """Let everything happen that happens before that time, which is the time then."""
        until_s = number("to_s", to_s, "s", least=self.clock.now, most=self.scenario.until_s)
        # A few events, for which the collector of garbage stays as it is.
        self._process(self.clock.run, until_s)

    def _advance(self, until_s: float | None) -> None:
        self._process(super()._advance, until_s)

    def _process(self, events: Callable[[float | None], None], until_s: float | None) -> None:
        """Let events process what comes before a time; then forget requests that have ended, if few are kept."""
        self._advancing = True
        try:
            events(until_s)
        finally:
            self._advancing = False
        recorder = self.recorder
        if self._submissions.keep is Keep.OPEN and recorder.ended >= self._forgets_at:
            self._forgets_at = recorder.ended + FORGOTTEN_TOGETHER
            self._submissions.forget(recorder.forget())

    def run(self, progress: Callable[[int], None] = lambda ended: None, cores: int = 1) -> Recorder:
        """Raise InputError: there is no trace to play."""
        raise InputError("a driven run has no trace to play: submit requests, advance, and close")

    def close(self) -> Recorder:
        """No more requests come: serve those that are there, up to the scenario's until_s; return what was recorded.

        Raises InputError for a run that is closed.
        """
        if self._closed:
            raise InputError("a run is closed twice, must be closed once")
        self._closed = True
        submissions = self._submissions
        self.recorder.close(len(submissions), None if submissions.keep is Keep.OPEN else self.trace())
        self._advance(self.scenario.until_s)
        return self._end()

    def trace(self) -> Trace:
        """Return the requests that were submitted so far, as a trace; not with Keep.OPEN."""
        return replace(
            self.scenario.trace,
            adapters=tuple(AdapterSpec(each.name, each.rank) for each in self.adapters),
            history_rps=self._further.history_rps(),
            **self._submissions.columns(),
        )
