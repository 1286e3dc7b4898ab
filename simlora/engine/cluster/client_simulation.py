"""A run whose clients react to what becomes of their requests: closed loops, patience, and retries."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import inf, nan, nextafter
from typing import ClassVar, NamedTuple

import numpy as np
import pandas as pd

from simlora.core.random import stream
from simlora.core.request import Request
from simlora.core.trace import Trace
from simlora.engine.clients import MOST_RETRY_AFTER_S
from simlora.engine.clock import ARRIVAL, URGENT, Event
from simlora.engine.cluster.driven import DrivenSimulation
from simlora.engine.cluster.submissions import Submitted
from simlora.engine.parts.first_tokens import FirstTokens
from simlora.engine.replica.cancelling import REASON
from simlora.engine.scenario import Scenario
from simlora.metrics.recorder import Recorder

TIMES = (
    *("admitted_s", "first_token_s", "ttft_s", "tpot_s", "latency_s"),
    *("queue_s", "cold_start_s", "kv_cold_start_s", "blocked_s"),
)
"""Columns that are empty for a lost request."""
CLIENT = 1 << 39
"""Clients act after the arrivals of the same moment."""
ANSWERED, GAVE_UP, UNFINISHED = "answered", "gave up", "unfinished"


class Call(NamedTuple):
    """What became of one request of the workload, over all attempts to have it answered.

    `sent_s`: when its first attempt was sent; NaN: it never was. `abandoned`: attempts that the client left.
    `request_id`: the last attempt, a row of the requests. `ttft_s` and `latency_s` are from `sent_s` on, NaN where it
    was not answered.
    """

    arrival_s: float
    sent_s: float
    attempts: int
    abandoned: int
    request_id: int
    status: str
    ttft_s: float
    latency_s: float


@dataclass
class _Open:
    """A request of the workload that is under way: its row, and the attempt that is.

    `retry_after_s` is what the rate limit told it to wait.
    """

    row: int
    sent_s: float = nan
    attempts: int = 0
    abandoned: int = 0
    request: Request | None = None
    leaves: Event | None = None
    retry_after_s: int | None = None


class ClientSimulation(DrivenSimulation):
    """Plays the scenario's trace as its clients would: each row is a call, and each attempt at it a request.

    A client reacts at the next floating-point time after what it reacts to. So the trace of all attempts, played as it
    is, gives the same run again, unless clients abandoned some. The jitter of a retry depends on the seed, the row and
    the attempt alone: systems that are compared have the same.
    """

    hands_over: ClassVar[bool] = True

    def __init__(self, scenario: Scenario) -> None:
        played, self._clients = scenario.trace, scenario.clients
        if self._clients.patience_s is not None:
            told = partial(FirstTokens, on_first=self._has_begun, on_wait=self._waits)
            scenario = replace(scenario, parts=(told, *scenario.parts))
        super().__init__(scenario)
        self._played = played
        self._jitter_key = int(stream(scenario.seed, "clients").integers(2**63))
        self._free = inf if self._clients.outstanding is None else self._clients.outstanding
        self._next = 0  # row of the trace
        self._due: deque[int] = deque()  # rows that wait for a turn
        self._under_way: dict[int, _Open] = {}  # by row
        self._open: dict[int, _Open] = {}  # by the id of the attempt that is under way
        self._calls: dict[int, Call] = {}  # that are over, by row
        self._abandoned: set[int] = set()  # ids of attempts
        if self.dispatcher.rate_limiter is not None:
            self.dispatcher.rate_limiter.on_refused = self._hold_back
        self.dispatcher.on_end += (self._finish,)
        self.recorder.on_lost += (self._lose,)
        self.faults.on_fail += (self._fail_host,)

    def run(self, progress: Callable[[int], None] = lambda ended: None, cores: int = 1) -> Recorder:
        """Simulate until every call is over, or `until_s`; on one core, as replicas affect each other's arrivals."""
        self.dispatcher.progress = lambda ended: progress(len(self._calls))
        self._expect()
        try:
            self._advance(self.scenario.until_s)
        finally:
            if not self._closed:
                self._hear_no_more()
        return self._end()

    def requests(self) -> pd.DataFrame:
        """Return a row an attempt. One whose client left while its prompt was processed is aborted, as if it waited."""
        found = self.recorder.requests()
        gone = found["request_id"].isin(self._abandoned) & found["status"].isin(("finished", "unfinished"))
        said = {name: found[name].mask(gone) for name in TIMES}
        lost = {"status": found["status"].mask(gone, "aborted"), "reason": found["reason"].mask(gone, REASON)}
        return found.assign(**said, **lost)

    def calls(self) -> list[Call]:
        """Return what became of each row of the trace, in its order."""
        found = []
        for row in range(len(self._played)):
            under_way = self._under_way.get(row, _Open(row))
            found.append(self._calls.get(row) or self._call(under_way, UNFINISHED, nan, nan))
        return found

    def _call(self, call: _Open, status: str, ttft_s: float, latency_s: float) -> Call:
        arrival_s = float(self._played.arrival_s[call.row])
        last = -1 if call.request is None else call.request.id
        return Call(arrival_s, call.sent_s, call.attempts, call.abandoned, last, status, ttft_s, latency_s)

    # Sending ----------------------------------------------------------------------------

    def _at(self, time_s: float, does: Callable[[], None]) -> Event:
        return self.clock.call(max(time_s, nextafter(self.clock.now, inf)), ARRIVAL, CLIENT, does)

    def _expect(self) -> None:
        """Wait for the next row of the trace; after the last call, hear no more."""
        if self._next < len(self._played):
            arrival_s = float(self._played.arrival_s[self._next])
            self.clock.call(arrival_s, ARRIVAL, CLIENT, self._want)
        elif len(self._calls) == len(self._played):
            self._hear_no_more()

    def _want(self) -> None:
        """A client wants the next row of the trace answered."""
        self._due.append(self._next)
        self._next += 1
        self._expect()
        self._send_due()

    def _send_due(self) -> None:
        while self._due and self._free > 0:
            self._free -= 1
            call = _Open(self._due.popleft())
            self._under_way[call.row] = call
            self._send(call)

    def _send(self, call: _Open) -> None:
        now_s, patience_s = self.clock.now, self._clients.patience_s
        call.request = request = self._submit(_submitted(self._played, call.row), now_s)
        call.attempts += 1
        if call.attempts == 1:
            call.sent_s = now_s
        self._open[request.id] = call
        if patience_s is not None:
            call.leaves = self._at(now_s + patience_s, partial(self._leave, request))

    def _hear_no_more(self) -> None:
        """All requests have been sent: no replica waits for more, as in a run of their trace."""
        self._closed = True
        trace = self.trace()
        self.recorder.close(len(trace), trace)

    # What becomes of an attempt ---------------------------------------------------------

    def _has_begun(self, request: Request) -> None:
        """The first token is there: the client waits for the rest."""
        call = self._open.get(request.id)
        if call is not None and call.leaves is not None:
            self.clock.cancel(call.leaves)
            call.leaves = None

    def _waits(self, request: Request) -> None:
        """A request joins a queue: again, if its client has gone and its host has failed, or it was preempted."""
        if request.id in self._abandoned:
            self.clock.call(self.clock.now, URGENT, 0, partial(self._cancel, request))

    def _fail_host(self, replicas: Sequence[int]) -> None:
        """A host fails: where no other replica is there, its requests wait for one."""
        self.clock.call(self.clock.now, URGENT, 0, self._drop_unassigned)

    def _drop_unassigned(self) -> None:
        for handoff in list(self.fleet.unassigned):
            if handoff.request.id in self._abandoned:
                self._cancel(handoff.request)

    def _taken(self, request: Request) -> _Open | None:
        """Return the call of an attempt that is over, None if its client has left before."""
        call = self._open.pop(request.id, None)
        if call is not None and call.leaves is not None:
            self.clock.cancel(call.leaves)
            call.leaves = None
        return call

    def _finish(self, replica: int, request: Request) -> None:
        call = self._taken(request)
        if call is not None:
            begun_s, now_s = request.first_token_s, self.clock.now
            self._end_call(call, ANSWERED, begun_s - call.sent_s, now_s - call.sent_s)

    def _lose(self, request: Request, status: int, reason: str) -> None:
        call = self._taken(request)
        if call is not None:
            self._fail(call, self._ever_fits(request))

    def _hold_back(self, request: Request, retry_after_s: int) -> None:
        """The rate limit is about to reject an attempt, and tells its client when to come back."""
        self._open[request.id].retry_after_s = retry_after_s

    def _leave(self, request: Request) -> None:
        call = self._open.pop(request.id)
        call.leaves = None
        call.abandoned += 1
        self._abandoned.add(request.id)
        self._cancel(request)
        self._fail(call, again=True)

    def _ever_fits(self, request: Request) -> bool:
        scenario, unservable = self.scenario, self.dispatcher.unservable
        routed_to = scenario.cluster.prefill_replicas or scenario.cluster.replicas  # the first of them
        return any(
            not unservable(request, self.fleet.adapter_of(request, first), kind.replica)
            for first, kind in zip(scenario.firsts, scenario.kinds, strict=True)
            if first < routed_to
        )

    def _fail(self, call: _Open, again: bool) -> None:
        """An attempt has failed: the client tries again after a while, or gives up."""
        clients, told_s = self._clients, call.retry_after_s
        call.retry_after_s = None
        if told_s is not None and told_s > MOST_RETRY_AFTER_S:
            again = False
        if again and call.attempts <= clients.retries:
            place = np.random.Philox(key=self._jitter_key, counter=(call.row << 32) + call.attempts)
            backoff_s = clients.backoff(call.attempts, float(np.random.Generator(place).random()))
            wait_s = backoff_s if told_s is None else told_s
            self._at(self.clock.now + wait_s, partial(self._send, call))
        else:
            self._end_call(call, GAVE_UP, nan, nan)

    def _end_call(self, call: _Open, status: str, ttft_s: float, latency_s: float) -> None:
        del self._under_way[call.row]
        self._calls[call.row] = self._call(call, status, ttft_s, latency_s)
        if self._clients.outstanding is not None:
            self._at(self.clock.now + self._clients.think_s, self._take_turn)
        if len(self._calls) == len(self._played):
            self._hear_no_more()

    def _take_turn(self) -> None:
        self._free += 1
        self._send_due()


def _submitted(trace: Trace, row: int) -> Submitted:
    """Return a row of a trace as it is submitted."""
    columns = (trace.prompt_tokens, trace.output_tokens, trace.adapter, trace.max_output_tokens)
    prompt, output, adapter, most = (int(column[row]) for column in columns)
    session = None if trace.session is None else trace.session[row]
    hashes = () if trace.block_hashes is None else tuple(trace.block_hashes[row])
    return Submitted(prompt, output, adapter, most, session, hashes)
