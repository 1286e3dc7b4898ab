"""Parts that report what happens inside a replica, and change nothing: the queue, tokens, and a trace of everything."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from simlora.core.adapter import Adapter
from simlora.core.request import Request
from simlora.engine.replica.decode_window import DecodeWindow
from simlora.engine.replica.part import Part
from simlora.engine.replica.replica import Replica
from simlora.metrics.tracing import TO_GPU, TO_HOST, Came, Copied, Left, Ran
from simlora.metrics.tracing import Tracing as Events

Report = Callable[[int, Request], None]
"""Is called with a replica's number and a request."""
OnToken = Callable[[Request, int, float], None]
"""Is called with a request, the number of its token, from 1 on, and the token's time."""


class QueueReports(Part):
    """Reports each request that joins or leaves the waiting queue, for routers that know how much work waits where."""

    def __init__(self, id: int, add: Report, remove: Report) -> None:
        self._id, self._add, self._remove = id, add, remove

    def on_queue(self, request: Request, waits: bool) -> None:
        (self._add if waits else self._remove)(self._id, request)


class TokenStream(Part):
    """Reports every token at its time: each decode step has its own boundary, at the time that it has anyway."""

    def __init__(self, replica: Replica, on_token: OnToken) -> None:
        self._batch, self._on_token = replica.table.batch, on_token
        self._told: dict[int, int] = {}  # the last token of each request, by id: a step may give it several

    def steps(self, most: int) -> int:
        return min(most, 1)

    def after_prefill(self, request: Request, now_s: float) -> None:
        self._told[request.id] = request.generated_tokens + 1
        self._on_token(request, request.generated_tokens + 1, now_s)

    def before_last_step(self, window: DecodeWindow, steps: int, now_s: float) -> None:
        batch, told = self._batch, self._told
        for ahead in range(1 - steps, 1):  # several only if the clock has stopped
            token_s = window.end_s(window.stop + ahead)
            for request in batch:
                last = batch.generated(request) + ahead + 1
                for token in range(told.get(request.id, last - 1) + 1, last + 1):
                    self._on_token(request, token, token_s)
                told[request.id] = last

    def on_release(self, request: Request, now_s: float) -> None:
        self._told.pop(request.id, None)


class Tracing(Part):
    """Adds iterations, copies, and adapters that come and leave to the `events` of a trace."""

    def __init__(self, replica: Replica, events: Events) -> None:
        self._replica, self._events = replica, events
        replica.kv.adapters.on_change += (self._adapter,)
        replica.host_link.to_gpu.on_transfer += (partial(self._copied, TO_GPU),)
        replica.host_link.to_host.on_transfer += (partial(self._copied, TO_HOST),)

    def _copied(self, link: str, begin_s: float, until_s: float, what: Adapter | int | None) -> None:
        self._events.add(Copied(self._replica.id, link, begin_s, until_s, what))

    def _adapter(self, id: int, resident: bool) -> None:
        """An adapter has come into HBM, or has left it."""
        now_s, cache = self._events.now(), self._replica.kv.adapters
        if resident:
            self._events.add(Came(self._replica.id, now_s, cache.adapter(id), cache.ready_s[id]))
        else:
            self._events.add(Left(self._replica.id, now_s, id))

    def on_ran(self, now_s: float) -> None:
        replica, table = self._replica, self._replica.table
        window, prefill = table.window, table.prefill
        begin_s = replica.start_s if window is None else window.end_s(window.done)
        tokens = sum(replica.output.chunks or (request.prefill_tokens for request in prefill))
        batch, steps = (0, 0) if window is None else (len(table.batch.members), window.stop - window.done)
        self._events.add(Ran(replica.id, replica.since_s, begin_s, now_s, len(prefill), tokens, batch, steps))
