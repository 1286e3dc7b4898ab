"""A request between two replicas."""

from __future__ import annotations

from typing import NamedTuple

from simlora.core.request import Request


class Handoff(NamedTuple):
    """A request that has left a replica before its end, or that no replica has taken yet.

    `token_s` is when it had its last token; None: it has none. `lost_tokens` were prefilled, and have to be again.
    """

    request: Request
    token_s: float | None = None
    lost_tokens: int = 0
