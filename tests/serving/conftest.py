"""Live clusters, in this process: asked without a network, or by real clients on the loopback address."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import httpx
from starlette.applications import Starlette
from starlette.types import ASGIApp

from simlora.api.preparing import composed, ready
from simlora.config.setup import Setup
from simlora.serving.app import app
from simlora.serving.front import Front
from simlora.serving.live import Live, Wishes
from simlora.serving.server import listening, serving

SLORA = ("gpu=a10g", "model=llama_7b", "workload.duration_s=3", "report=false")
VLLM = (
    "gpu=h100_64g",
    "model=llama_3_1_8b",
    "system=vllm",
    "workload=per_adapter",
    "replica.max_loras=4",
    "report=false",
)
FAST = Wishes(speed=20.0)


@cache
def setup(*overrides: str) -> Setup:
    """A configuration, made once."""
    config, choices = composed(list(overrides))
    return ready(config, choices)


def live(*overrides: str, wishes: Wishes = FAST, record: Path | None = None) -> Live:
    """A live cluster that nothing was asked of."""
    found = Live(setup(*(overrides or SLORA)), wishes)
    if record is not None:
        found.record(record)
    return found


def asked(front: Front, ask: Callable[[httpx.AsyncClient], Awaitable[Any]]) -> Any:
    """Return what a client finds that asks a front."""
    return asked_of(app(front, [front]), ask)


def asked_of(application: Starlette, ask: Callable[[httpx.AsyncClient], Awaitable[Any]]) -> Any:
    """Return what a client finds that asks an application."""

    async def run() -> Any:
        transport = httpx.ASGITransport(application)
        async with (
            application.router.lifespan_context(application),
            httpx.AsyncClient(transport=transport, base_url="http://live", timeout=60) as client,
        ):
            return await ask(client)

    return asyncio.run(run())


def post(front: Front, path: str, body: Any, **headers: str) -> httpx.Response:
    """Return the answer to one request; `body` is sent as it is if it is bytes, or else as JSON."""

    async def ask(client: httpx.AsyncClient) -> httpx.Response:
        if isinstance(body, bytes):
            return await client.post(path, content=body, headers=headers)
        return await client.post(path, json=body, headers=headers)

    found: httpx.Response = asked(front, ask)
    return found


def get(front: Front, path: str) -> httpx.Response:
    """Return the answer to one request."""
    found: httpx.Response = asked(front, lambda client: client.get(path))
    return found


def listens(found: Live) -> AbstractContextManager[list[str]]:
    """Serve a live cluster, as `serves` does."""
    return serves([app(front, found.fronts) for front in found.fronts])


@contextmanager
def serves(apps: Sequence[ASGIApp]) -> Iterator[list[str]]:
    """Serve on free ports of the loopback address, from a thread; yield the addresses."""
    sockets = [listening("127.0.0.1", 0) for _ in apps]
    loop, stop = asyncio.new_event_loop(), asyncio.Event()
    thread = threading.Thread(target=lambda: loop.run_until_complete(serving(apps, sockets, stop)))
    thread.start()
    try:
        yield [f"http://127.0.0.1:{each.getsockname()[1]}" for each in sockets]
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join()
        loop.close()
        for each in sockets:
            each.close()
