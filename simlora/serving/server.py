"""Serves some fronts, each on a port of its own, until it is asked to stop."""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import uvicorn

from simlora.core.errors import InputError
from simlora.serving.app import app
from simlora.serving.front import Front

GRACE_S = 5
"""Wall seconds that answers under way have when the server stops."""


class _Server(uvicorn.Server):
    """uvicorn's, without signal handlers: several run beside each other, and stop together."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def listening(host: str, port: int) -> socket.socket:
    """Return a socket that listens; port 0 is any free one. Raises InputError where that cannot be."""
    try:
        return socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except (OSError, OverflowError) as error:
        why = getattr(error, "strerror", None) or error
        raise InputError(f"cannot listen on {host} port {port}: {why}; set --host and --port") from None


def serve(fronts: Sequence[Front], sockets: Sequence[socket.socket], started: Callable[[], None]) -> None:
    """Serve each front on its socket until SIGINT or SIGTERM; `started` is called when connections are taken."""
    with asyncio.Runner(loop_factory=_new_loop()) as runner:
        runner.run(_until_signalled(fronts, sockets, started))


async def _until_signalled(
    fronts: Sequence[Front], sockets: Sequence[socket.socket], started: Callable[[], None]
) -> None:
    stop, loop = asyncio.Event(), asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    loop.call_soon(started)
    await serving(fronts, sockets, stop)


async def serving(fronts: Sequence[Front], sockets: Sequence[socket.socket], stop: asyncio.Event) -> None:
    """Serve each front on its socket until `stop` is set; answers under way have GRACE_S seconds then."""
    servers = [
        _Server(
            uvicorn.Config(
                app(front),
                log_level="error",
                access_log=False,
                lifespan="off",
                timeout_graceful_shutdown=GRACE_S,
            )
        )
        for front in fronts
    ]
    served = [server.serve(sockets=[each]) for server, each in zip(servers, sockets, strict=True)]
    tasks = asyncio.gather(*served)
    await stop.wait()
    for server in servers:
        server.should_exit = True
    await tasks


def _new_loop() -> Callable[[], asyncio.AbstractEventLoop]:
    """Return what makes an event loop: uvloop's where it is installed."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop
    return uvloop.new_event_loop
