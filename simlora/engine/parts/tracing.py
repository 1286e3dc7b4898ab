"""Everything that happens inside a replica, for a timeline to be looked at closely."""

from __future__ import annotations

from simlora.core.adapter import Adapter
from simlora.engine.replica.link import Link
from simlora.engine.replica.part import Part
from simlora.engine.replica.replica import Replica
from simlora.metrics.tracing import TO_GPU, TO_HOST, Came, Copied, Left, Ran
from simlora.metrics.tracing import Tracing as Events


class Tracing(Part):
    """Tells `events` of iterations, copies, and adapters that come and leave."""

    __slots__ = ("_events", "_replica")

    def __init__(self, replica: Replica, events: Events) -> None:
        self._replica, self._events = replica, events
        replica.kv.adapters.on_change += (self._adapter,)
        link = replica.host_link
        self._watch(link.to_gpu, TO_GPU)
        self._watch(link.to_host, TO_HOST)

    def _watch(self, link: Link, name: str) -> None:
        id, events = self._replica.id, self._events

        def copied(begin_s: float, until_s: float, what: Adapter | int | None) -> None:
            events.add(Copied(id, name, begin_s, until_s, what))

        link.on_transfer += (copied,)

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
