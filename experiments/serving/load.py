"""Open-loop load on a server: a Poisson process of streamed requests, over connections that are kept.

The client speaks just the HTTP that it needs: with aiohttp a client takes more of a core than the server does, falls
behind itself, and sends in bunches of fifty what should come one by one.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass, field
from typing import cast
from urllib.parse import urlsplit

import numpy as np

from simlora.serving.server import new_loop

PROMPT_TOKENS = 128
PROMPT = "x" * (4 * PROMPT_TOKENS)
"""Of every request: the server counts four characters as a token."""
ADAPTERS = [f"adapter_{number}" for number in range(50)]
KEPT_S = 4.0
"""Seconds for which an idle connection is used again: the server, as vLLM does, closes one after 5 s."""
END_OF_EVENT, END_OF_BODY = b"\n\n", b"0\r\n\r\n"


@dataclass
class Counted:
    """What the client saw, in wall seconds; the time per token is from a stream's first token to its last."""

    answered: int = 0
    failed: int = 0
    tokens: int = 0
    seconds: float = 0.0
    first_token_s: list[float] = field(default_factory=list)
    time_per_token_s: list[float] = field(default_factory=list)


def run(asking: Coroutine[None, None, Counted]) -> Counted:
    """Return what a load brought, on the event loop that the server has."""
    with asyncio.Runner(loop_factory=new_loop()) as runner:
        return runner.run(asking)


def arrivals_s(rate_rps: float, requests: int) -> list[float]:
    """Return when the requests of a Poisson process arrive [requests]: with the same seed each time."""
    return np.random.default_rng(0).exponential(1 / rate_rps, requests).cumsum().tolist()


async def load(address: str, rate_rps: float, tokens: int, adapters: Sequence[str], requests: int) -> Counted:
    """Ask of the adapters in turn, at `arrivals_s`; return what came back until the last answer."""
    counted, began_s = Counted(), time.perf_counter()
    where, loop = urlsplit(address), asyncio.get_running_loop()
    idle: list[_Connection] = []
    answers = []
    for number, due_s in enumerate(arrivals_s(rate_rps, requests)):
        if (wait_s := began_s + due_s - time.perf_counter()) > 0:
            await asyncio.sleep(wait_s)
        body = {
            "model": adapters[number % len(adapters)],
            "prompt": PROMPT,
            "max_tokens": tokens,
            "ignore_eos": True,
            "stream": True,
        }
        if idle and idle[-1].idle_for_s() < KEPT_S:
            connection = idle.pop()
        else:
            _, connection = await loop.create_connection(
                lambda: _Connection(counted, idle), where.hostname, where.port
            )
        answers.append(connection.ask(where.netloc, json.dumps(body).encode()))
    await asyncio.gather(*answers)
    for connection in idle:
        connection.close()
    counted.seconds = time.perf_counter() - began_s
    return counted


class _Connection(asyncio.Protocol):
    """A connection that asks for one streamed answer at a time, and joins the `idle` ones behind it."""

    def __init__(self, counted: Counted, idle: list[_Connection]) -> None:
        self._counted, self._idle = counted, idle
        self._since_s = self._last_s = 0.0
        self._events, self._ok = 0, False
        self._answer: asyncio.Future[None] | None = None
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is of no class of asyncio's

    def ask(self, host: str, body: bytes) -> asyncio.Future[None]:
        """Send a request; return what is done when its answer is over."""
        assert self._transport is not None
        head = f"POST /v1/completions HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n"
        self._answer = asyncio.get_running_loop().create_future()
        self._events, self._ok, self._since_s = 0, False, time.perf_counter()
        self._transport.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        return self._answer

    def data_received(self, data: bytes) -> None:
        now_s = time.perf_counter()
        if not self._events:
            self._ok = self._ok or data.startswith(b"HTTP/1.1 200")
        if events := data.count(END_OF_EVENT):
            if not self._events:
                self._counted.first_token_s.append(now_s - self._since_s)
                self._since_s = now_s
            self._events, self._last_s = self._events + events, now_s
        if data.endswith(END_OF_BODY) or (not self._ok and not self._events):
            self._over()

    def connection_lost(self, error: Exception | None) -> None:
        if self._answer is not None:
            self._ok = False
            self._over()
        elif self in self._idle:  # the server keeps none for long
            self._idle.remove(self)

    def idle_for_s(self) -> float:
        """Return the seconds since the last bytes of an answer."""
        return time.perf_counter() - self._last_s

    def close(self) -> None:
        """Close the connection."""
        assert self._transport is not None
        self._transport.close()

    def _over(self) -> None:
        answer, self._answer = self._answer, None
        if answer is None:
            return
        self._counted.answered += self._ok
        self._counted.failed += not self._ok
        tokens = max(self._events - 1, 0)  # the last one is [DONE]
        self._counted.tokens += tokens
        if self._ok and tokens > 1:
            self._counted.time_per_token_s.append((self._last_s - self._since_s) / (tokens - 1))
        assert self._transport is not None
        if self._ok:
            self._idle.append(self)
        else:
            self._transport.close()
        if not answer.done():
            answer.set_result(None)
