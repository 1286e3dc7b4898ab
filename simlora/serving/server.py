"""Serves some applications, each on a port of its own, until it is asked to stop."""

from __future__ import annotations

import asyncio
import gc
import signal
import socket
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import uvicorn
from starlette.types import ASGIApp

from simlora.core.errors import InputError

YOUNG = 100_000
"""Objects by which more have been made than freed before garbage is looked for. By 700, as is usual, each search goes
through all that open requests hold, as these end about as often as others begin: 10 to 25 ms, several times a second,
with 500 requests a second."""
SWITCH_S = 1e-3
"""Seconds after which a thread that writes metrics lets answers go on; 5 ms is usual, which a token would be late."""
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


def serve(apps: Sequence[ASGIApp], sockets: Sequence[socket.socket], started: Callable[[], None]) -> None:
    """Serve each application on its socket until SIGINT or SIGTERM; `started` is called when connections are taken."""
    gc.collect()
    gc.freeze()  # of what is there by now: to look through it again and again would stop all streams each time
    gc.set_threshold(YOUNG)
    sys.setswitchinterval(SWITCH_S)
    with asyncio.Runner(loop_factory=new_loop()) as runner:
        runner.run(_until_signalled(apps, sockets, started))


async def _until_signalled(
    apps: Sequence[ASGIApp], sockets: Sequence[socket.socket], started: Callable[[], None]
) -> None:
    stop, loop = asyncio.Event(), asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    loop.call_soon(started)
    await serving(apps, sockets, stop)


async def serving(apps: Sequence[ASGIApp], sockets: Sequence[socket.socket], stop: asyncio.Event) -> None:
    """Serve each application on its socket until `stop` is set; answers under way have GRACE_S seconds then."""
    servers = [
        _Server(
            uvicorn.Config(
                app,
                log_level="error",
                access_log=False,
                proxy_headers=False,
                lifespan="auto",
                timeout_graceful_shutdown=GRACE_S,
            )
        )
        for app in apps
    ]
    served = [server.serve(sockets=[each]) for server, each in zip(servers, sockets, strict=True)]
    tasks = asyncio.gather(*served)
    await stop.wait()
    for server in servers:
        server.should_exit = True
    await tasks


def new_loop() -> Callable[[], asyncio.AbstractEventLoop]:
    """Return what makes an event loop: uvloop's where it is installed."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop
    return uvloop.new_event_loop
