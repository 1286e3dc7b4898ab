"""The HTTP API of one port: vLLM's, and simlora's own below /simlora/."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from http import HTTPStatus
from importlib.resources import files
from typing import Any

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from simlora import __version__
from simlora.engine.cluster.submissions import Submitted
from simlora.serving import faults
from simlora.serving.adapters import RANK_HEADER
from simlora.serving.answer import JSON, Answer
from simlora.serving.errors import ApiError
from simlora.serving.front import Front, text_of_chat
from simlora.serving.metrics import VllmMetrics
from simlora.serving.schemas import Chat, Completion, Fault, LoadAdapter, Tokenize, UnloadAdapter, decoded
from simlora.serving.state import state

PAGE = files("simlora.serving") / "page.html"
log = logging.getLogger("simlora.serving")
Endpoint = Callable[[Request], Awaitable[ASGIApp]]


def app(front: Front, fronts: Sequence[Front]) -> Starlette:
    """Return the ASGI application of one of the fronts of a server."""
    api = _Api(front, fronts)
    answers = {"/v1/completions": _endpoint(api.completions), "/v1/chat/completions": _endpoint(api.chat)}
    return _App(
        answers,
        routes=[
            *(Route(path, answer, methods=["POST"]) for path, answer in answers.items()),
            Route("/v1/models", api.models),
            Route("/v1/load_lora_adapter", _endpoint(api.load), methods=["POST"]),
            Route("/v1/unload_lora_adapter", _endpoint(api.unload), methods=["POST"]),
            Route("/tokenize", _endpoint(api.tokenize), methods=["POST"]),
            Route("/health", api.health),
            Route("/ping", api.health, methods=["GET", "POST"]),
            Route("/version", api.version),
            Route("/metrics", api.metrics),
            Route("/simlora/alive", api.alive),
            Route("/simlora/state", api.state),
            Route("/simlora/faults", _endpoint(api.fault), methods=["POST"]),
            Route("/simlora/", api.page),
        ],
        exception_handlers={HTTPException: _http_error, ApiError: _api_error},
    )


class _App(Starlette):
    """Starlette's, but that requests for answers go past its middleware, which wraps each token twice."""

    def __init__(self, answers: Mapping[str, ASGIApp], **others: Any) -> None:
        super().__init__(**others)
        self._answers = answers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        answer = self._answers.get(scope["path"]) if scope.get("method") == "POST" else None
        await (answer or super().__call__)(scope, receive, send)


class _Api:
    def __init__(self, front: Front, fronts: Sequence[Front]) -> None:
        self._front, self._fronts, self._cluster = front, fronts, front.cluster
        self._metrics = VllmMetrics(front.cluster, front.adapters.base)

    # vLLM's -----------------------------------------------------------------------------

    async def completions(self, request: Request) -> ASGIApp:
        wanted = decoded(await self._body(request), Completion)
        characters = _characters(wanted.prompt)
        submitted = await self._beside_streams(self._front.completion, wanted, characters)
        return self._answer(submitted, wanted, chat=False)

    async def chat(self, request: Request) -> ASGIApp:
        wanted = decoded(await self._body(request), Chat)
        submitted = await self._beside_streams(self._front.chat, wanted, sum(map(_length, wanted.messages)))
        return self._answer(submitted, wanted, chat=True)

    def _answer(self, submitted: list[Submitted], wanted: Completion | Chat, chat: bool) -> Answer:
        cluster, front = self._cluster, self._front
        if not cluster.healthy:
            raise ApiError(503, "no replica takes requests")
        limits = [wanted.asked_tokens or front.max_model_len - each.prompt_tokens for each in submitted]
        tickets = [
            cluster.submit(each, bool(wanted.stream), limit_tokens)
            for each, limit_tokens in zip(submitted, limits, strict=True)
        ]
        model = wanted.model or front.adapters.base
        return Answer(cluster, tickets, wanted, chat, front.id("chatcmpl" if chat else "cmpl"), model)

    async def _beside_streams(self, does: Callable[[Any], Any], value: Any, characters: int) -> Any:
        """Return what a function makes of a prompt; of a long one in a thread: 7 MB held up all streams for 0.8 s."""
        return (
            does(value) if characters <= self._front.prompts.quick else await asyncio.to_thread(does, value)
        )

    async def models(self, request: Request) -> Response:
        return _json({"object": "list", "data": self._front.models()})

    async def load(self, request: Request) -> ASGIApp:
        wanted = decoded(await self._body(request), LoadAdapter)
        header = request.headers.get(RANK_HEADER)
        digits = header is not None and header.isascii() and header.isdigit() and len(header) < 10
        if header is not None and not (digits and int(header)):
            raise ApiError(400, f"{RANK_HEADER} is {header[:60]!r}, must be a whole number, at least 1")
        rank = wanted.rank if header is None else int(header)
        self._front.adapters.load(wanted.lora_name, wanted.lora_path, rank, wanted.load_inplace)
        return Response(
            f"Success: LoRA adapter '{wanted.lora_name}' added successfully.", media_type="text/plain"
        )

    async def unload(self, request: Request) -> ASGIApp:
        name = decoded(await self._body(request), UnloadAdapter).lora_name
        self._front.adapters.unload(name)
        return Response(f"Success: LoRA adapter '{name}' removed successfully.", media_type="text/plain")

    async def tokenize(self, request: Request) -> ASGIApp:
        wanted = decoded(await self._body(request), Tokenize)
        self._front.adapters.number(wanted.model)
        if wanted.prompt is None and wanted.messages is None:
            raise ApiError(400, "prompt or messages must be there", "prompt")
        text = wanted.prompt if wanted.prompt is not None else text_of_chat(wanted.messages or [])
        ids = await self._beside_streams(self._front.prompts.ids, text, len(text))
        found = {
            "count": len(ids),
            "max_model_len": self._front.max_model_len,
            "tokens": ids,
            "token_strs": None,
        }
        return _json(found)

    async def health(self, request: Request) -> Response:
        return Response(status_code=200 if self._cluster.healthy else 503)

    async def version(self, request: Request) -> Response:
        return _json({"version": f"{__version__}+simlora"})

    async def metrics(self, request: Request) -> Response:
        return Response(await self._metrics.text(), media_type="text/plain; version=0.0.4")

    # Ours -------------------------------------------------------------------------------

    async def alive(self, request: Request) -> Response:
        """Answer 200 unless the simulator has stopped with an error: a failed replica is no reason to start anew."""
        return Response(status_code=200 if self._cluster.crashed is None else 500)

    async def state(self, request: Request) -> Response:
        found = state(self._cluster, self._front.adapters.base)
        if request.query_params.get("ports") == "all":
            every = [state(each.cluster, each.adapters.base) for each in self._fronts]
            found["replicas"] = [replica for each in every for replica in each["replicas"]]
            found["open_requests"] = sum(each["open_requests"] for each in every)
            found["drift"] = max((each["drift"] for each in every), key=lambda drift: drift["p99_s"])
            found["crashed"] = next((each["crashed"] for each in every if each["crashed"]), None)
        return _json(found)

    async def fault(self, request: Request) -> ASGIApp:
        faults.begin(self._front, decoded(await self._body(request), Fault))
        return _json({"time_s": self._cluster.simulation.clock.now})

    async def page(self, request: Request) -> Response:
        return HTMLResponse(PAGE.read_text(encoding="utf-8"))

    async def _body(self, request: Request) -> bytes:
        """Return the body of a request. Raises ApiError 413 for one that is too large, before all of it is read."""
        most = self._front.max_body_bytes
        parts: list[bytes] = []
        size, more = 0, True
        while more:
            message = await request.receive()
            if message["type"] == "http.disconnect":
                raise ClientDisconnect
            part, more = message.get("body", b""), message.get("more_body", False)
            parts.append(part)
            size += len(part)
            if size > most:
                raise ApiError(413, f"the body has more than {most} bytes (--max-body-bytes)")
        return b"".join(parts)


class _endpoint:  # noqa: N801  # it wraps a function, as a decorator does
    """An ASGI application of a function that returns one: Starlette wraps functions, and would buffer ours."""

    def __init__(self, respond: Endpoint) -> None:
        self._respond = respond

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            response: ASGIApp = await self._respond(Request(scope, receive))
        except ApiError as error:
            response = error.response()
        except ClientDisconnect:
            return  # before the end of its body: there is no request
        except Exception as error:  # a fault of ours, which ends this request alone
            log.exception("%s cannot be answered", scope["path"])
            response = ApiError(500, f"{type(error).__name__}: {error}").response()
        await response(scope, receive, send)


def _characters(prompt: str | list[Any]) -> int:
    """Return the characters and token ids of a completion's prompts."""
    if prompt and isinstance(prompt, list) and isinstance(prompt[0], (str, list)):
        return sum(len(each) for each in prompt if isinstance(each, (str, list)))
    return len(prompt)


def _length(message: Mapping[str, Any]) -> int:
    return len(str(message.get("content")))


def _json(body: object) -> Response:
    return Response(msgspec.json.encode(body), media_type=JSON)


async def _http_error(request: Request, error: Exception) -> Response:
    """Answer for a path or a method that there is not."""
    assert isinstance(error, HTTPException)
    kind = HTTPStatus(error.status_code).phrase
    body = {"error": {"message": error.detail, "type": kind, "param": None, "code": error.status_code}}
    return Response(msgspec.json.encode(body), error.status_code, error.headers, JSON)


async def _api_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, ApiError)
    return error.response()
