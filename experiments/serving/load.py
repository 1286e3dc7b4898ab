"""Open-loop load on a server: so many streamed requests a second, each in a task of its own."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import aiohttp

PROMPT_TOKENS = 128
"""Of every request: at four characters a token."""


@dataclass
class Counted:
    """What the client saw; times in wall seconds, gaps between events of one stream."""

    answered: int = 0
    failed: int = 0
    tokens: int = 0
    seconds: float = 0.0
    first_token_s: list[float] = field(default_factory=list)
    gaps_s: list[float] = field(default_factory=list)


async def load(
    address: str, rate_rps: float, tokens: int, adapters: Sequence[str], seconds: float
) -> Counted:
    """Ask at even gaps, of the adapters in turn; return what came back until the last answer."""
    counted, began_s = Counted(), time.perf_counter()
    timeout = aiohttp.ClientTimeout(total=120)
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector, timeout=timeout) as session:
        tasks = []
        for number in range(int(rate_rps * seconds)):
            await asyncio.sleep(began_s + number / rate_rps - time.perf_counter())
            body = {
                "model": adapters[number % len(adapters)],
                "prompt": "x" * (4 * PROMPT_TOKENS),
                "max_tokens": tokens,
                "ignore_eos": True,
                "stream": True,
            }
            tasks.append(asyncio.ensure_future(_ask(session, f"{address}/v1/completions", body, counted)))
        await asyncio.gather(*tasks)
    counted.seconds = time.perf_counter() - began_s
    return counted


async def _ask(
    session: aiohttp.ClientSession, address: str, body: dict[str, object], counted: Counted
) -> None:
    try:
        asked_s = last_s = time.perf_counter()
        async with session.post(address, json=body) as response:
            events = 0
            async for part in response.content.iter_any():
                now_s = time.perf_counter()
                (counted.gaps_s if events else counted.first_token_s).append(
                    now_s - last_s if events else now_s - asked_s
                )
                events, last_s = events + part.count(b"\n\n"), now_s
            counted.answered += response.status == 200
            counted.failed += response.status != 200
            counted.tokens += events - 1  # the last one is [DONE]
    except aiohttp.ClientError:
        counted.failed += 1
