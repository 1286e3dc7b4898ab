"""How tokens reach a connection: the timer that wakes the cluster, and a connection that takes no more for now."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from typing import Any

import pytest

from simlora.engine.cluster.submissions import Submitted
from simlora.serving.alarm import Alarm
from simlora.serving.drift import Drift
from simlora.serving.live_clock import LiveClock
from simlora.serving.ticket import FINISHED, Ticket
from simlora.serving.token_events import EventText, TokenEvents


class Connection:
    """Takes a body when it may."""

    def __init__(self) -> None:
        self.may_take = asyncio.Event()
        self.taken: list[bytes] = []
        self.more: list[bool] = []
        self.fails: Exception | None = None

    async def send(self, message: Any) -> None:
        """Take a body, as an ASGI server's `send` does."""
        if self.fails is not None:
            raise self.fails
        await self.may_take.wait()
        self.taken.append(message["body"])
        self.more.append(message["more_body"])


def events(
    connection: Connection, end: Callable[[], bytes] | None = None
) -> tuple[Ticket, TokenEvents, Drift]:
    """The events of an answer of which no token has come."""
    ticket, drift = Ticket(Submitted(1, 9), streams=True, limit_tokens=9), Drift(LiveClock())
    text = EventText(b"<", b">", b"> and no more")
    said = TokenEvents(connection.send, ticket, drift, text, b"role ", end)
    return ticket, said, drift


def tell(ticket: Ticket, *tokens: int) -> None:
    """The cluster tells some tokens, and has them sent after its step."""
    for token in tokens:
        ticket.tell(token, 0.0)
    ticket.send_due()


def test_tokens_wait_together_for_a_connection_that_takes_no_more() -> None:
    async def run() -> None:
        connection = Connection()
        ticket, said, drift = events(connection)
        connection.may_take.set()
        tell(ticket, 1)
        assert connection.taken == [b'role <"This">}\n\n'], "at once, in no other task"
        connection.may_take.clear()
        tell(ticket, 2)
        tell(ticket, 3, 4)
        await asyncio.sleep(0)
        assert (connection.taken[1:], drift.tally.count) == ([], 4), (
            "it is the client that is slow, not the server"
        )
        connection.may_take.set()
        await said.all_sent()
        assert connection.taken[1:] == [b'<" text">}\n\n', b'<" is filler:">}\n\n']
        assert drift.tally.count == 4

    asyncio.run(run())


def test_the_last_token_goes_with_the_end_of_the_stream() -> None:
    async def run() -> None:
        connection = Connection()
        connection.may_take.set()
        ticket, said, _ = events(connection, lambda: b"the end")
        tell(ticket, 1)
        assert (said.ended, connection.more) == (False, [True])
        ticket.tell(2, 0.0)
        ticket.end(FINISHED)
        ticket.send_due()
        assert connection.taken == [b'role <"This">}\n\n', b'<" text"> and no more}\n\nthe end']
        assert (said.ended, connection.more) == (True, [True, False])
        await said.all_sent()

    asyncio.run(run())


def test_what_a_connection_raises_ends_its_own_answer_alone() -> None:
    async def run() -> None:
        connection = Connection()
        ticket, said, _ = events(connection)
        connection.fails = OSError("gone")
        tell(ticket, 1)  # as the cluster does in its step, which goes on
        tell(ticket, 2)
        with pytest.raises(OSError, match="gone"):
            await said.all_sent()

    asyncio.run(run())


@pytest.mark.parametrize("platform", ["linux", "other"])
def test_an_alarm_rings_once_after_it_was_set_last(platform: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", platform if platform == "other" else sys.platform)

    async def run() -> None:
        rung: list[float] = []
        loop = asyncio.get_running_loop()
        alarm = Alarm(lambda: rung.append(loop.time()))
        began_s = loop.time()
        alarm.set(0.01)
        alarm.set(0.1)
        await asyncio.sleep(0.3)
        assert len(rung) == 1
        assert rung[0] - began_s > 0.099
        alarm.set(0.01)
        alarm.cancel()
        await asyncio.sleep(0.1)
        assert len(rung) == 1
        alarm.set(0.0)
        await asyncio.sleep(0.1)
        assert len(rung) == 2

    asyncio.run(run())
