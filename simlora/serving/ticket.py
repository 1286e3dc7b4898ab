"""One request that a client waits for: its tokens as they come, and how it ends."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from simlora.core.request import Request
from simlora.engine.cluster.submissions import Submitted
from simlora.metrics.rows import ABORTED, FINISHED, REJECTED

FAILED: Final = REJECTED + 1
"""The replica behind a port of its own has failed."""
CRASHED: Final = REJECTED + 2
"""The simulator has stopped with an error."""
__all__ = ["ABORTED", "CRASHED", "FAILED", "FINISHED", "REJECTED", "Ticket"]


class Ticket:
    """`tokens` were told so far, the first at `first_s` and the last at `last_s`, simulated.

    An answer of `limit_tokens` ends because of its length. `status` is 0 until the request has ended; then it is
    FINISHED, ABORTED, REJECTED, FAILED or CRASHED, with the `reason`. `replica` is the last one that it was given to;
    -1: none. Of one that `streams`, `due_s` are the times of the tokens that were told since `send_due` was called,
    which sends them.
    """

    __slots__ = (
        "_waiter",
        "due_s",
        "first_s",
        "last_s",
        "limit_tokens",
        "reason",
        "replica",
        "request",
        "send_due",
        "status",
        "streams",
        "submitted",
        "tokens",
    )
    request: Request

    def __init__(self, submitted: Submitted, streams: bool, limit_tokens: int) -> None:
        self.submitted, self.streams, self.limit_tokens = submitted, streams, limit_tokens
        self.tokens = self.status = 0
        self.replica = -1
        self.first_s = self.last_s = 0.0
        self.reason = ""
        self.due_s: list[float] = []
        self.send_due: Callable[[], None] = nothing
        self._waiter: asyncio.Future[None] | None = None

    def tell(self, tokens: int, time_s: float) -> None:
        """The request has so many tokens."""
        if not self.tokens:
            self.first_s = time_s
        self.tokens, self.last_s = tokens, time_s
        if self.streams:
            self.due_s.append(time_s)

    def assign(self, replica: int) -> None:
        """A replica has the request."""
        self.replica = replica
        self._wake()

    def end(self, status: int, reason: str = "") -> None:
        """The request has ended, unless it had before."""
        if not self.status:
            self.status, self.reason = status, reason
            self._wake()

    async def taken(self) -> bool:
        """Wait until a replica has the request, or its end; return whether one has, or had, it."""
        while not self.status and self.replica < 0:
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        return self.replica >= 0

    async def ended(self) -> None:
        """Wait for the end."""
        while not self.status:
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter

    def _wake(self) -> None:
        waiter, self._waiter = self._waiter, None
        if waiter is not None and not waiter.done():
            waiter.set_result(None)


def nothing() -> None:
    """Send nothing: the head of the answer was not sent yet, or all of it was."""
