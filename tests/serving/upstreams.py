"""Servers behind simlora-record that say what a test wants them to."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import Response

from tests.serving.conftest import serves

HELLO = {"model": "adapter_1", "prompt": "Hello, how are you?", "max_tokens": 6, "ignore_eos": True}
STREAM = b"text/event-stream"


@contextmanager
def says(
    answer: bytes, kind: bytes = b"application/json", *headers: tuple[bytes, bytes]
) -> Iterator[tuple[str, list[tuple[Headers, bytes]]]]:
    """Give one answer to every request; yield the address, and the headers and bodies that come."""
    heard = list[tuple[Headers, bytes]]()

    async def application(scope: Any, receive: Any, send: Any) -> None:
        request = Request(scope, receive)
        heard.append((request.headers, await request.body()))
        response = Response(answer)
        response.raw_headers += [(b"content-type", kind), *headers]
        await response(scope, receive, send)

    with serves([application]) as (address,):
        yield address, heard
