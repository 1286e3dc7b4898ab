"""The events of one streamed answer, sent as its tokens come."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator, Iterator
from typing import Any

from starlette.types import Send

from simlora.serving.drift import Drift
from simlora.serving.filler import json_of
from simlora.serving.ticket import FINISHED, Ticket, nothing

SENT = object()
"""Is returned in place of what a coroutine waits for when it has ended."""


class EventText:
    """Makes the bodies of events: `before` a text, `after` it or `after_last`, and with the `usage` so far, if any."""

    def __init__(
        self, before: bytes, after: bytes, after_last: bytes, usage: Callable[[int], bytes] | None = None
    ) -> None:
        self._before, self._after, self._after_last, self._usage = before, after, after_last, usage

    def of(self, begin: int, end: int, last: bool) -> bytes:
        """Return the event of the tokens from one number to another; `last`: the answer ends with them."""
        after = self._after_last if last else self._after
        if self._usage is not None:
            after += b',"usage":' + self._usage(end)
        return b"".join((self._before, json_of(begin, end), after, b"}\n\n"))


class TokenEvents:
    """Sends an event for the tokens that are due together.

    The cluster calls `send_due` after each step. It sends at once, and starts no task unless the connection takes no
    more for now: to wake a task for every token took an eighth of the server's time. `first` comes before the first
    event. With `end`, what that returns goes with the last event and ends the body, in one write to the connection;
    `ended` says that it has. What the connection raises is raised by `all_sent`, in the task of its own answer.
    """

    def __init__(
        self,
        send: Send,
        ticket: Ticket,
        drift: Drift,
        text: EventText,
        first: bytes,
        end: Callable[[], bytes] | None = None,
    ) -> None:
        self._send, self._ticket, self._drift, self._text, self._first = send, ticket, drift, text, first
        self._end, self.ended = end, False
        self._sent = 0
        self._going_on: asyncio.Future[None] | None = None
        ticket.send_due = self.send_due
        self.send_due()

    def send_due(self) -> None:
        """Send the tokens that were not sent yet, unless those before them are still on their way."""
        ticket = self._ticket
        due_s, ticket.due_s = ticket.due_s, []
        if ticket.tokens > self._sent and self._going_on is None:
            self._send_to(ticket.tokens)
        if due_s:  # also while the connection takes no more: that is its client's delay, not the server's
            self._drift.add(due_s)

    def _send_to(self, tokens: int) -> None:
        """Send the tokens up to a number."""
        last = self._ticket.status == FINISHED
        body = self._first + self._text.of(self._sent, tokens, last)
        self._first, self._sent = b"", tokens
        if last and self._end is not None:
            body, self.ended = body + self._end(), True
        message = {"type": "http.response.body", "body": body, "more_body": not self.ended}
        sending = self._send(message).__await__()
        try:
            waits_for = next(sending, SENT)
        except Exception as error:  # of this connection: the cluster's step and the other streams go on
            self._going_on = asyncio.get_running_loop().create_future()
            self._going_on.set_exception(error)
            return
        if waits_for is not SENT:
            self._going_on = asyncio.ensure_future(self._go_on(_Rest(sending, waits_for)))

    async def all_sent(self) -> None:
        """Wait until the connection has taken all tokens there are."""
        while self._going_on is not None:
            await self._going_on
        self._ticket.send_due = nothing  # so that both are freed without a search for cycles

    async def _go_on(self, sending: Awaitable[None]) -> None:
        await sending
        self._going_on = None
        self.send_due()


class _Rest:
    """What is left of a coroutine that waits for something."""

    def __init__(self, steps: Iterator[Any], waits_for: object) -> None:
        self._steps, self._waits_for = steps, waits_for

    def __await__(self) -> Generator[Any, Any, None]:
        yield self._waits_for
        yield from self._steps
