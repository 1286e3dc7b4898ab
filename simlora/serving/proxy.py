"""A proxy in front of a real server that hands requests on and logs its completions."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import httpx
from starlette.applications import Starlette
from starlette.background import BackgroundTask
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from simlora.serving.completion_log import Completion, CompletionLog

COMPLETIONS = ("/v1/completions", "/v1/chat/completions")
METHODS = ["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "HEAD"]
HOP_BY_HOP = {
    b"connection", b"keep-alive", b"proxy-authenticate", b"proxy-authorization", b"te", b"trailer",
    b"transfer-encoding", b"upgrade", b"host", b"content-length", b"accept-encoding",
}  # fmt: skip
"""Headers that are of one connection (RFC 9110, 7.6.1), and those of a body that may be another on the way."""
CLOSED, BAD_GATEWAY = 499, 502
"""Status of a request whose client left (NGINX's), and of one that the server could not be asked."""
T = TypeVar("T")
END_OF_EVENT = re.compile(rb"\r?\n\r?\n")


def is_address(upstream: str) -> bool:
    """Whether a server can be at an address: a scheme, a host, no port that there is not, and no path.

    Requests bring their own path, which begins with /v1.
    """
    try:
        url = httpx.URL(upstream)
    except httpx.InvalidURL:
        return False
    known = url.scheme in ("http", "https") and bool(url.host) and (url.port or 0) <= 65535
    return known and url.path in ("", "/")


def proxy(upstream: str, log: CompletionLog) -> Starlette:
    """Return the ASGI application that hands every request on to `upstream`, and its answer back.

    A stream is asked for its usage, which the client sees only if it asked for it too: tokens are the server's own
    count then. Bodies are handed on as they come; nothing waits for the end of a stream. When a client leaves, the
    connection to the server is closed, so that the server can abort the request as it would without the proxy.
    """
    client = httpx.AsyncClient(
        base_url=upstream, timeout=None, limits=httpx.Limits(max_connections=None)
    )  # as long as the clients wait

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        yield
        await client.aclose()

    async def handed_on(request: Request) -> Response:
        body = await request.body()
        completes = request.method == "POST" and request.url.path in COMPLETIONS
        if completes and (asked := _object(body)):  # the server refuses any other body
            return await _logged(client, request, asked, body, log)
        try:
            return await _unless_left(request, _answered(client, request, body))
        except _Left:
            return Response(status_code=CLOSED)

    return Starlette(routes=[Route("/{path:path}", handed_on, methods=METHODS)], lifespan=lifespan)


class _Left(Exception):
    """The client has closed its connection."""


async def _unless_left(request: Request, asking: Coroutine[Any, Any, T]) -> T:
    """Return what a server answers. Raises _Left, and asks no longer, when the client of a read request has gone."""
    answer, left = asyncio.ensure_future(asking), asyncio.ensure_future(request.receive())
    try:
        await asyncio.wait((answer, left), return_when=asyncio.FIRST_COMPLETED)
        if not answer.done():
            raise _Left
        return answer.result()
    finally:
        answer.cancel()
        left.cancel()


async def _answered(client: httpx.AsyncClient, request: Request, body: bytes) -> Response:
    try:
        answer = await client.send(_asked(client, request, body), stream=True)
    except httpx.HTTPError as error:
        return _bad_gateway(error)
    return StreamingResponse(
        answer.aiter_bytes(),
        answer.status_code,
        _of_answer(answer),
        background=BackgroundTask(answer.aclose),
    )


async def _logged(
    client: httpx.AsyncClient, request: Request, asked: dict[str, Any], body: bytes, log: CompletionLog
) -> Response:
    completion, sent = Completion(asked), _with_usage(asked, body)
    to_server = _asked(client, request, sent)
    try:
        answer = await _unless_left(request, client.send(to_server, stream=True))
        streams = answer.headers.get("content-type", "").startswith("text/event-stream")
        try:
            whole = b"" if streams else await _unless_left(request, answer.aread())
        except _Left:
            await answer.aclose()
            raise
    except _Left:
        log.write(completion.ended(CLOSED))
        return Response(status_code=CLOSED)
    except httpx.HTTPError as error:
        log.write(completion.ended(BAD_GATEWAY))
        return _bad_gateway(error)
    if not streams:
        completion.of_whole(_object(whole))
        log.write(completion.ended(answer.status_code))
        return Response(whole, answer.status_code, _of_answer(answer))

    async def events() -> AsyncIterator[bytes]:
        status = CLOSED
        try:
            async for event in _events(answer):
                found = _object(event.removeprefix(b"data:"))
                completion.of_stream(found)
                if not (sent is not body and found.get("usage") and not found.get("choices")):
                    yield event + b"\n\n"
            status = answer.status_code
        except httpx.HTTPError:
            status = BAD_GATEWAY
            raise
        finally:
            log.write(completion.ended(status))
            await answer.aclose()

    return StreamingResponse(events(), answer.status_code, _of_answer(answer))


def _with_usage(asked: dict[str, Any], body: bytes) -> bytes:
    """Return the body that also asks a stream for its usage; the same bytes where nothing is to be added."""
    options = asked.get("stream_options") or {}
    if not asked.get("stream") or not isinstance(options, dict) or options.get("include_usage"):
        return body
    try:
        return json.dumps(asked | {"stream_options": options | {"include_usage": True}}).encode()
    except RecursionError:  # it may be nested as deep as can be read
        return body


async def _events(answer: httpx.Response) -> AsyncIterator[bytes]:
    """Yield the events of a stream, whose ends need not be those of the pieces that it comes in."""
    left = b""
    async for piece in answer.aiter_bytes():
        *whole, left = END_OF_EVENT.split(left + piece)
        for event in whole:
            yield event
    if left.strip():
        yield left


def _asked(client: httpx.AsyncClient, request: Request, body: bytes) -> httpx.Request:
    # As the client wrote it: a decoded path may be another one.
    path, query = request.scope["raw_path"], request.scope["query_string"]
    url = httpx.URL(raw_path=path + b"?" + query if query else path)
    headers = [each for each in request.headers.raw if each[0] not in HOP_BY_HOP]
    return client.build_request(request.method, url, headers=headers, content=body)


def _of_answer(answer: httpx.Response) -> Headers:
    """Return the headers that a client gets. A body is decoded on the way, so that its encoding is not handed on."""
    left_out = HOP_BY_HOP | {b"content-encoding"}
    named = [(name.lower(), value) for name, value in answer.headers.raw]
    return Headers(raw=[each for each in named if each[0] not in left_out])


def _object(text: bytes) -> dict[str, Any]:
    """Return the JSON object that a text is, empty if it is none."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):  # no JSON, or nested too deep
        return {}
    return found if isinstance(found, dict) else {}


def _bad_gateway(error: httpx.HTTPError) -> Response:
    message = f"the server that simlora-record hands requests on to cannot be reached: {error}"
    return JSONResponse(
        {"error": {"message": message, "type": "BadGateway", "code": BAD_GATEWAY}}, BAD_GATEWAY
    )
