"""A request between two replicas."""

from __future__ import annotations

from typing import NamedTuple

from simlora.core.request import Request
from simlora.metrics.journal import Moved


class Handoff(NamedTuple):
    """A request that has left a replica before its end, or that has none yet.

    `token_s` is when it had its last token; None: it has none. `lost_tokens` had been prefilled, and will be again.
    """

    request: Request
    token_s: float | None = None
    lost_tokens: int = 0

    def moved(
        self, source: int, target: int, now_s: float, decided_s: float, loads: bool, reason: str
    ) -> Moved:
        """Return the journal's row of a request that moves now; target -1: no replica takes it yet."""
        request = self.request
        name = request.adapter.name if request.adapter is not None else ""
        return Moved(now_s, decided_s, request.id, name, source, target, self.lost_tokens, loads, reason)
