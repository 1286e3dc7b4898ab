"""A proxy in front of a real server that logs its completions: when, which model, how many tokens, how fast."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import AsyncIterator, Coroutine, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import httpx
from starlette.applications import Starlette
from starlette.background import BackgroundTask
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from simlora.core.errors import InputError

COMPLETIONS = ("/v1/completions", "/v1/chat/completions")
METHODS = ["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "HEAD"]
HOP_BY_HOP = {
    "connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "te", "trailer", "transfer-encoding",
    "upgrade", "host", "content-length", "accept-encoding",
}  # fmt: skip
"""Headers that are of one connection (RFC 9110, 7.6.1), and those of a body that may be another on the way."""
CLOSED, BAD_GATEWAY = 499, 502
"""Status of a request whose client left (NGINX's), and of one that the server could not be asked."""
T = TypeVar("T")
END_OF_EVENT = re.compile(rb"\r?\n\r?\n")


class CompletionLog:
    """A JSON object a line for each completion, in the order in which they ended."""

    def __init__(self, path: Path) -> None:
        """Raise InputError for a file that cannot be written."""
        self.path, self.written = path, 0
        try:
            self._file = path.open("a", encoding="utf-8")
        except OSError as error:
            raise InputError(f"{path} cannot be written: {error.strerror or error}") from None

    def write(self, entry: Mapping[str, Any]) -> None:
        """Write one, so that it is kept whatever happens next."""
        self._file.write(json.dumps(entry) + "\n")
        self._file.flush()
        self.written += 1

    def models(self) -> set[str]:
        """Return the models of all entries, also of an earlier process."""
        with self.path.open(encoding="utf-8") as lines:
            return {str(json.loads(line)["model"]) for line in lines}

    def close(self) -> None:
        """Close the file."""
        self._file.close()


class Completion:
    """One request for a completion, from its arrival to its end."""

    def __init__(self, asked: Mapping[str, Any]) -> None:
        self._timestamp, self._began_s = datetime.now(UTC), time.perf_counter()
        self._asked, self._usage = asked, dict[str, Any]()
        self._first_s: float | None = None
        self._pieces = 0

    def of_stream(self, event: Mapping[str, Any]) -> None:
        """Take an event of the answer's stream. The first one with a choice is the first token, as clients see it."""
        if event.get("choices"):
            self._pieces += 1
            if self._first_s is None:
                self._first_s = time.perf_counter()
        self._usage |= event.get("usage") or {}

    def of_whole(self, answer: Mapping[str, Any]) -> None:
        """Take an answer that is no stream."""
        self._usage |= answer.get("usage") or {}

    def ended(self, status: int) -> dict[str, Any]:
        """Return the log's entry. An answer whose server does not say its tokens has as many as it had events."""
        now_s, asked = time.perf_counter(), self._asked
        return {
            "timestamp": self._timestamp.isoformat(),
            "model": asked.get("model"),
            "status": status,
            "prompt_tokens": self._usage.get("prompt_tokens"),
            "completion_tokens": self._usage.get("completion_tokens", self._pieces or None),
            "max_tokens": asked.get("max_completion_tokens") or asked.get("max_tokens"),
            "ttft_s": None if self._first_s is None else round(self._first_s - self._began_s, 6),
            "latency_s": round(now_s - self._began_s, 6),
        }


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
        asked = _completion(request, body)
        if asked is not None:
            return await _logged(client, request, asked, log)
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


def _completion(request: Request, body: bytes) -> dict[str, Any] | None:
    """Return the body of a request for a completion; None for any other request."""
    if request.method != "POST" or request.url.path not in COMPLETIONS:
        return None
    try:
        found = json.loads(body)
    except ValueError:
        return None  # which the server refuses
    return found if isinstance(found, dict) else None


async def _answered(client: httpx.AsyncClient, request: Request, body: bytes) -> Response:
    try:
        answer = await client.send(_asked(client, request, body), stream=True)
    except httpx.HTTPError as error:
        return _bad_gateway(error)
    return StreamingResponse(
        answer.aiter_bytes(),
        answer.status_code,
        _handed_on(answer.headers),
        background=BackgroundTask(answer.aclose),
    )


async def _logged(
    client: httpx.AsyncClient, request: Request, asked: dict[str, Any], log: CompletionLog
) -> Response:
    completion = Completion(asked)
    options = asked.get("stream_options") or {}
    added = bool(asked.get("stream")) and not (isinstance(options, dict) and options.get("include_usage"))
    sent = asked | ({"stream_options": {"include_usage": True}} if added else {})
    to_server = _asked(client, request, json.dumps(sent).encode())
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
        return Response(whole, answer.status_code, _handed_on(answer.headers))

    async def events() -> AsyncIterator[bytes]:
        status = CLOSED
        try:
            async for event in _events(answer):
                found = _object(event.removeprefix(b"data:"))
                completion.of_stream(found)
                if not (added and found.get("usage") and not found.get("choices")):
                    yield event + b"\n\n"
            status = answer.status_code
        except httpx.HTTPError:
            status = BAD_GATEWAY
            raise
        finally:
            log.write(completion.ended(status))
            await answer.aclose()

    return StreamingResponse(events(), answer.status_code, _handed_on(answer.headers))


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
    url = httpx.URL(path=request.url.path, query=request.url.query.encode())
    return client.build_request(request.method, url, headers=_handed_on(request.headers), content=body)


def _handed_on(headers: Mapping[str, str]) -> dict[str, str]:
    """Return the headers that are handed on. A body is decoded on the way, so that its encoding is not."""
    left_out = HOP_BY_HOP | {"content-encoding"}
    return {name: value for name, value in headers.items() if name.lower() not in left_out}


def _object(text: bytes) -> dict[str, Any]:
    """Return the JSON object that a text is, empty if it is none."""
    try:
        found = json.loads(text)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _bad_gateway(error: httpx.HTTPError) -> Response:
    message = f"the server that simlora-record hands requests on to cannot be reached: {error}"
    return JSONResponse(
        {"error": {"message": message, "type": "BadGateway", "code": BAD_GATEWAY}}, BAD_GATEWAY
    )
