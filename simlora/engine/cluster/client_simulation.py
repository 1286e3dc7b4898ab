"""A run whose clients react to what becomes of their requests: closed loops, patience, and retries."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from math import inf, nan, nextafter
from typing import NamedTuple

import pandas as pd

from simlora.core.random import stream
from simlora.core.request import Request
from simlora.core.trace import Trace
from simlora.engine.clock import ARRIVAL, URGENT, Event
from simlora.engine.cluster.driven import DrivenSimulation, Submitted
from simlora.engine.parts.first_tokens import FirstTokens
from simlora.engine.replica.admission import unservable
from simlora.engine.replica.cancelling import REASON
from simlora.engine.scenario import Scenario
from simlora.metrics.recorder import Recorder

TIMES = (
    *("admitted_s", "first_token_s", "ttft_s", "tpot_s", "latency_s"),
    *("queue_s", "cold_start_s", "kv_cold_start_s", "blocked_s"),
)
"""What a request that was lost has not."""
CLIENT = 1 << 39
"""Clients act after the arrivals of the same moment."""
ANSWERED, GAVE_UP, UNFINISHED = "answered", "gave up", "unfinished"


class Call(NamedTuple):
    """What became of one request of the workload, over all attempts to have it answered.

    `sent_s`: when its first attempt was sent; NaN: it never was. `left`: how many of the attempts the client left.
    `request_id`: the last attempt, a row of the requests. `ttft_s` and `latency_s` are from `sent_s` on, NaN where it
    was not answered.
    """

    arrival_s: float
    sent_s: float
    attempts: int
    left: int
    request_id: int
    status: str
    ttft_s: float
    latency_s: float


@dataclass
class _Open:
    """A request of the workload that is under way: its row, and the attempt that is."""

    row: int
    sent_s: float = nan
    attempts: int = 0
    left: int = 0
    request: Request | None = None
    leaves: Event | None = None


class ClientSimulation(DrivenSimulation):
    """Plays the scenario's trace as its clients would: each row is a call, and each attempt at it a request.

    A client reacts at the next larger number after what it reacts to, so that the trace of all attempts, played as it
    is, gives the same run again, unless clients have left.
    """

    def __init__(self, scenario: Scenario) -> None:
        played, self._clients = scenario.trace, scenario.clients
        if self._clients.patience_s is not None:
            told = partial(FirstTokens, on_first=self._has_begun)
            scenario = replace(scenario, parts=(told, *scenario.parts))
        super().__init__(scenario)
        self._played = played
        self._rng = stream(scenario.seed, "clients")
        self._free = inf if self._clients.outstanding is None else self._clients.outstanding
        self._next = 0  # row of the trace
        self._due: deque[int] = deque()  # rows that wait for a turn
        self._under_way: dict[int, _Open] = {}  # by row
        self._open: dict[int, _Open] = {}  # by the id of the attempt that is under way
        self._calls: dict[int, Call] = {}  # that are over, by row
        self._left: set[int] = set()  # ids of attempts
        self.dispatcher.on_end += (self._finish,)
        self.recorder.on_lost += (self._lose,)

    def run(self, progress: Callable[[int], None] = lambda ended: None, cores: int = 1) -> Recorder:
        """Simulate until every call is over, or `until_s`; on one core, as replicas affect each other's arrivals."""
        self.dispatcher.progress = progress
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
        gone = found["request_id"].isin(self._left) & (found["status"] == "finished")
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
        return Call(arrival_s, call.sent_s, call.attempts, call.left, last, status, ttft_s, latency_s)

    # Sending ----------------------------------------------------------------------------

    def _at(self, time_s: float, does: Callable[[], None]) -> Event:
        return self.clock.call(max(time_s, nextafter(self.clock.now, inf)), ARRIVAL, CLIENT, does)

    def _expect(self) -> None:
        """Wait for the next row of the trace; after the last call, hear no more."""
        if self._next < len(self._played):
            arrival_s = float(self._played.arrival_s[self._next])
            self.clock.call(arrival_s, ARRIVAL, CLIENT, self._want)
        elif len(self._calls) == len(self._played):
            self.clock.call(self.clock.now, URGENT, 0, self._hear_no_more)

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
        """All requests there will be have been sent."""
        self._closed = True
        self.recorder.close(self.trace())

    # What becomes of an attempt ---------------------------------------------------------

    def _has_begun(self, request: Request) -> None:
        """The first token is there: the client waits for the rest."""
        call = self._open.get(request.id)
        if call is not None and call.leaves is not None:
            self.clock.cancel(call.leaves)
            call.leaves = None

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

    def _leave(self, request: Request) -> None:
        call = self._open.pop(request.id)
        call.leaves = None
        call.left += 1
        self._left.add(request.id)
        self._cancel(request)
        self._fail(call, again=True)

    def _ever_fits(self, request: Request) -> bool:
        scenario = self.scenario
        return any(not unservable(request, request.adapter, kind.replica) for kind in scenario.kinds)

    def _fail(self, call: _Open, again: bool) -> None:
        """An attempt has failed: the client tries again after a while, or gives up."""
        clients = self._clients
        if again and call.attempts <= clients.retries:
            wait_s = clients.backoff(call.attempts, float(self._rng.random()))
            self._at(self.clock.now + wait_s, partial(self._send, call))
        else:
            self._end_call(call, GAVE_UP, nan, nan)

    def _end_call(self, call: _Open, status: str, ttft_s: float, latency_s: float) -> None:
        del self._under_way[call.row]
        self._calls[call.row] = self._call(call, status, ttft_s, latency_s)
        if self._clients.outstanding is not None:
            self._at(self.clock.now + self._clients.think_s, self._take_turn)
        if len(self._calls) == len(self._played):
            self.clock.call(self.clock.now, URGENT, 0, self._hear_no_more)

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
