"""Answers of completions and chats: whole, or as a stream of events."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from simlora.metrics.saturation import RATE_LIMITED
from simlora.serving.errors import ApiError
from simlora.serving.filler import text_of
from simlora.serving.live_cluster import LiveCluster
from simlora.serving.schemas import Wanted
from simlora.serving.ticket import CRASHED, FAILED, FINISHED, REJECTED, Ticket
from simlora.serving.token_events import EventText, TokenEvents

JSON = "application/json"
EVENTS = [(b"content-type", b"text/event-stream; charset=utf-8"), (b"cache-control", b"no-cache")]
FULL = ("cluster.max_outstanding", "no replica is left")


class Answer:
    """An ASGI application that answers one request, and lets the engine know when its client leaves.

    `head` begins every object of the answer: id, kind, time and model.
    """

    def __init__(
        self, cluster: LiveCluster, ticket: Ticket, wanted: Wanted, chat: bool, id: str, model: str
    ) -> None:
        self._cluster, self._ticket, self._wanted, self._chat = cluster, ticket, wanted, chat
        self._head = {"id": id, "created": int(cluster.clock.unix_s()), "model": model}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer."""
        left = asyncio.get_running_loop().create_task(_disconnected(receive))
        left.add_done_callback(self._leave)
        try:
            if self._wanted.stream:
                await self._stream(send)
            else:
                await self._ticket.ended()
                if not left.done():
                    self._cluster.drift.add([self._ticket.last_s if self._ticket.tokens else self._now_s()])
                    await self._whole()(scope, receive, send)
        except asyncio.CancelledError:
            self._cluster.leave(self._ticket)
            raise
        finally:
            left.remove_done_callback(self._leave)
            left.cancel()

    def _leave(self, done: asyncio.Future[None]) -> None:
        if not done.cancelled():
            self._cluster.leave(self._ticket)

    def _now_s(self) -> float:
        return self._cluster.clock.now_s()

    # Whole ------------------------------------------------------------------------------

    def _whole(self) -> Response:
        ticket = self._ticket
        if ticket.status != FINISHED:
            return self._refusal().response()
        text, reason = text_of(ticket.tokens), self._finish_reason()
        choice: dict[str, Any] = {"index": 0, "logprobs": None, "finish_reason": reason, "stop_reason": None}
        if self._chat:
            choice["message"] = {"role": "assistant", "content": text}
        else:
            choice["text"] = text
        kind = "chat.completion" if self._chat else "text_completion"
        body = self._head | {"object": kind, "choices": [choice], "usage": self._usage(ticket.tokens)}
        return Response(msgspec.json.encode(body), media_type=JSON)

    def _finish_reason(self) -> str:
        return "length" if self._ticket.tokens == self._ticket.limit_tokens else "stop"

    def _usage(self, tokens: int) -> dict[str, Any]:
        ticket = self._ticket
        prompt_tokens = ticket.submitted.prompt_tokens
        return {
            "prompt_tokens": prompt_tokens,
            "completion_tokens": tokens,
            "total_tokens": prompt_tokens + tokens,
            "prompt_tokens_details": {"cached_tokens": ticket.request.cached_tokens},
        }

    def _refusal(self) -> ApiError:
        """Return what is said of a request that was not served."""
        ticket = self._ticket
        if ticket.status == CRASHED:
            return ApiError(500, f"the simulator has stopped: {ticket.reason}")
        if ticket.status == REJECTED and ticket.reason.startswith(RATE_LIMITED):
            retry_after_s = self._cluster.retry_after_s(ticket)
            return ApiError(429, f"The request was not served: {ticket.reason}.", retry_after_s=retry_after_s)
        if ticket.status == REJECTED and not ticket.reason.startswith(FULL):
            return ApiError(422, f"This request could never run here, because {ticket.reason}.")
        return ApiError(503, f"The request was not served: {ticket.reason}.")

    # Stream -----------------------------------------------------------------------------

    async def _stream(self, send: Send) -> None:
        """Send the head when a replica has the request, and an event for tokens that are due together."""
        ticket = self._ticket
        if not await ticket.taken():
            await _send_whole(self._refusal().response(), send)
            return
        await send({"type": "http.response.start", "status": 200, "headers": EVENTS})
        role = self._role() if self._chat else b""
        events = TokenEvents(send, ticket, self._cluster.drift, self._events_text(), role)
        await ticket.ended()
        await events.all_sent()
        if ticket.status == FAILED:
            return  # the server breaks off an answer that is not whole
        end = b"data: [DONE]\n\n"
        if ticket.status != FINISHED:
            end = b"data: " + self._refusal().response().body + b"\n\n" + end
        elif self._wanted.usage_at_end:
            usage = {"choices": [], "usage": self._usage(ticket.tokens)}
            end = b"data: " + msgspec.json.encode(self._head | self._kind() | usage) + b"\n\n" + end
        await send({"type": "http.response.body", "body": end, "more_body": False})

    def _kind(self) -> dict[str, str]:
        return {"object": "chat.completion.chunk" if self._chat else "text_completion"}

    def _role(self) -> bytes:
        choice = {"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}
        return b"data: " + msgspec.json.encode(self._head | self._kind() | {"choices": [choice]}) + b"\n\n"

    def _events_text(self) -> EventText:
        head = b"data: " + msgspec.json.encode(self._head | self._kind())[:-1] + b',"choices":[{"index":0,'
        before = head + (b'"delta":{"content":' if self._chat else b'"text":')
        after = (b"}" if self._chat else b"") + b',"logprobs":null,"finish_reason":'
        usage = self._encoded_usage if self._wanted.usage_always else None
        return EventText(before, after + b"null}]", after + b'"%s"}]' % self._finish_of_stream(), usage)

    def _encoded_usage(self, tokens: int) -> bytes:
        return msgspec.json.encode(self._usage(tokens))

    def _finish_of_stream(self) -> bytes:
        ticket = self._ticket
        return b"length" if ticket.submitted.output_tokens == ticket.limit_tokens else b"stop"


async def _disconnected(receive: Callable[[], Awaitable[Any]]) -> None:
    """Return when the client has gone."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def _send_whole(response: Response, send: Send) -> None:
    await send(
        {"type": "http.response.start", "status": response.status_code, "headers": response.raw_headers}
    )
    await send({"type": "http.response.body", "body": response.body})
