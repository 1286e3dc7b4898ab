"""Requests that go to another replica, or come from one."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import inf, nextafter

from simlora.core.adapter import Adapter
from simlora.core.request import Request
from simlora.engine.handoff import Handoff
from simlora.engine.parts.async_loading import OverlappedLoader
from simlora.engine.replica.part import Part
from simlora.engine.replica.replica import Replica

OnMove = Callable[[Handoff, int, int], None]
"""Is called with a request that leaves one replica for another, and the numbers of both: from, to."""


class HandingOver(Part):
    """Hands requests over at iteration boundaries, and loads adapters ahead of requests that are to come.

    A request that is handed over keeps its tokens; its KV is computed anew.
    """

    def __init__(self, replica: Replica, on_move: OnMove, loader: OverlappedLoader | None) -> None:
        self._replica, self._table = replica, replica.table
        self._on_move, self._loader = on_move, loader
        self._sends: dict[int, int] = {}  # by request, to which replica it goes at the next boundary
        self._brings: dict[int, Adapter] = {}  # to be loaded at the next boundary

    def send(self, request: Request, target: int) -> None:
        """Let a request go to another replica as soon as the iteration under way is over."""
        self._sends[request.id] = target
        if self._replica.idle:
            self._replica.wake()
        else:
            self._replica.interrupt()

    def bring(self, adapter: Adapter) -> None:
        """Load an adapter as soon as the iteration under way is over, if there is room for it."""
        self._brings[adapter.id] = adapter
        if self._replica.idle:
            self._load_brought(self._replica.clock.now)
        else:
            self._replica.interrupt()

    def load(self, adapters: Iterable[Adapter], now_s: float) -> None:
        """Load adapters now, as far as there is room for them."""
        if self._loader is not None:
            self._loader.prefetch(adapters, now_s)

    def receive(self, handoff: Handoff, source: int) -> None:
        """A request comes at a boundary of replica `source`, -1: at none."""
        request, token_s, _ = handoff
        replica, table = self._replica, self._table
        self._sends.pop(request.id, None)  # of an earlier visit, during the iteration under way
        now_s = replica.clock.now
        # A boundary of this replica at the same moment is over if its number is lower.
        table.came_s[request.id] = nextafter(now_s, inf) if source > replica.id else now_s
        if token_s is not None:
            request.token_s = token_s
        replica.submit(request, by=source)
        replica.interrupt(source)  # its place may be before requests that were refused

    def at_boundary(self, now_s: float) -> None:
        if self._sends:
            self._hand_over(now_s)
        if self._brings:
            self._load_brought(now_s)

    def on_queue(self, request: Request, waits: bool) -> None:
        if not waits:
            self._table.came_s.pop(request.id, None)

    def _hand_over(self, now_s: float) -> None:
        """Send the requests away that have not ended meanwhile."""
        table, sends = self._table, self._sends
        self._sends = {}
        waiting = {request.id for request in table.queue}
        for request in table.requests():
            if request.id not in sends:
                continue
            lost_tokens = request.chunked_tokens
            if request.id not in waiting:
                table.requeue(request, now_s)
            table.dequeue(request)
            request.host_tokens = 0
            self._on_move(table.depart(request, lost_tokens), self._replica.id, sends[request.id])
        table.sweep(now_s)
        if not table.batch.members:
            self._replica.view.preempted = False  # there is memory again for preempted requests

    def _load_brought(self, now_s: float) -> None:
        brings, self._brings = self._brings, {}
        self.load(brings.values(), now_s)


def handing_over(replica: Replica) -> HandingOver:
    """Return the part of a replica that hands requests over."""
    found = replica.part(HandingOver)
    assert found is not None, f"replica {replica.id} does not hand requests over"
    return found
