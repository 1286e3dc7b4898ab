"""Answers of completions and chats: whole, or as a stream of events."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
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
DONE = b"data: [DONE]\n\n"
FULL = ("cluster.max_outstanding", "no replica is left")


class Answer:
    """An ASGI application that answers one HTTP request, and lets the engine know when its client leaves.

    Each ticket is a choice of it: the answers to each prompt one after the other, `wanted.answers` of each. `head`
    begins every object of the answer: id, kind, time and model.
    """

    def __init__(
        self, cluster: LiveCluster, tickets: Sequence[Ticket], wanted: Wanted, chat: bool, id: str, model: str
    ) -> None:
        self._cluster, self._tickets, self._wanted, self._chat = cluster, tickets, wanted, chat
        self._head = {"id": id, "created": int(cluster.clock.unix_s()), "model": model}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer."""
        left = asyncio.get_running_loop().create_task(_disconnected(receive))
        left.add_done_callback(self._leave)
        try:
            refused = await self._refused()
            if refused is not None:
                await _send_whole(refused.response(), send)
            elif self._wanted.stream:
                await self._stream(send)
            else:
                lost = await self._over()
                if not left.done():
                    if lost is None:
                        self._cluster.drift.add([max(each.last_s for each in self._tickets)])
                    await _send_whole(self._whole() if lost is None else self._refusal(lost).response(), send)
        except asyncio.CancelledError:
            self._leave_all()
            raise
        finally:
            left.remove_done_callback(self._leave)
            left.cancel()

    def _leave(self, done: asyncio.Future[None]) -> None:
        if not done.cancelled():
            self._leave_all()

    def _leave_all(self) -> None:
        for ticket in self._tickets:
            self._cluster.leave(ticket)

    async def _refused(self) -> ApiError | None:
        """Wait until replicas have all requests; of one that none takes, return what is said."""
        for ticket in self._tickets:
            if not await ticket.taken():
                self._leave_all()
                return self._refusal(ticket)
        return None

    async def _over(self) -> Ticket | None:
        """Wait for the end of all requests; the first that is not served ends the others, and is returned."""
        if len(self._tickets) == 1:
            await self._tickets[0].ended()
            return None if self._tickets[0].status == FINISHED else self._tickets[0]
        lost: Ticket | None = None
        open_ = {asyncio.ensure_future(each.ended()): each for each in self._tickets}
        try:
            while open_:
                done, _ = await asyncio.wait(open_, return_when=asyncio.FIRST_COMPLETED)
                ended = [open_.pop(one) for one in done]
                if lost is None:
                    lost = next((each for each in ended if each.status != FINISHED), None)
                    if lost is not None:
                        self._leave_all()
        finally:
            for one in open_:
                one.cancel()
        return lost

    # Whole ------------------------------------------------------------------------------

    def _whole(self) -> Response:
        kind = "chat.completion" if self._chat else "text_completion"
        choices = [self._choice(index, ticket) for index, ticket in enumerate(self._tickets)]
        body = self._head | {"object": kind, "choices": choices, "usage": self._usage_of_all()}
        return Response(msgspec.json.encode(body), media_type=JSON)

    def _choice(self, index: int, ticket: Ticket) -> dict[str, Any]:
        text, reason = text_of(ticket.tokens), "length" if ticket.tokens == ticket.limit_tokens else "stop"
        choice: dict[str, Any] = {
            "index": index,
            "logprobs": None,
            "finish_reason": reason,
            "stop_reason": None,
        }
        if self._chat:
            return choice | {"message": {"role": "assistant", "content": text}}
        return choice | {"text": text}

    def _usage_of_all(self) -> dict[str, Any]:
        """Return the tokens of all answers, and of each prompt once."""
        of_prompts = self._tickets[:: self._wanted.answers]
        return _usage(
            sum(each.submitted.prompt_tokens for each in of_prompts),
            sum(each.tokens for each in self._tickets),
            sum(each.request.cached_tokens for each in of_prompts),
        )

    def _refusal(self, ticket: Ticket) -> ApiError:
        """Return what is said of a request that was not served."""
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
        """Send the head, and an event for tokens of a request that are due together."""
        await send({"type": "http.response.start", "status": 200, "headers": EVENTS})
        drift, end = self._cluster.drift, self._end if len(self._tickets) == 1 else None
        streams = [
            TokenEvents(send, ticket, drift, self._events_text(index, ticket), self._role(index), end)
            for index, ticket in enumerate(self._tickets)
        ]
        lost = await self._over()
        for stream in streams:
            await stream.all_sent()
        if lost is not None and lost.status == FAILED:
            return  # the server breaks off an answer that is not whole
        if lost is not None:
            error = b"data: " + self._refusal(lost).response().body + b"\n\n"
            await send({"type": "http.response.body", "body": error + DONE, "more_body": False})
        elif not streams[0].ended:
            await send({"type": "http.response.body", "body": self._end(), "more_body": False})

    def _end(self) -> bytes:
        """Return what comes after the tokens of all choices, which were served."""
        if self._wanted.usage_at_end:
            usage = {"choices": [], "usage": self._usage_of_all()}
            return b"data: " + msgspec.json.encode(self._head | self._kind() | usage) + b"\n\n" + DONE
        return DONE

    def _kind(self) -> dict[str, str]:
        return {"object": "chat.completion.chunk" if self._chat else "text_completion"}

    def _role(self, index: int) -> bytes:
        """Return the event that comes before those of a choice's tokens, if there is one."""
        if not self._chat:
            return b""
        choice = {"index": index, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}
        return b"data: " + msgspec.json.encode(self._head | self._kind() | {"choices": [choice]}) + b"\n\n"

    def _events_text(self, index: int, ticket: Ticket) -> EventText:
        head = msgspec.json.encode(self._head | self._kind())[:-1] + b',"choices":[{"index":%d,' % index
        before = b"data: " + head + (b'"delta":{"content":' if self._chat else b'"text":')
        after = (b"}" if self._chat else b"") + b',"logprobs":null,"finish_reason":'
        usage = partial(_encoded_usage, ticket) if self._wanted.usage_always else None
        reason = b"length" if ticket.submitted.output_tokens == ticket.limit_tokens else b"stop"
        return EventText(before, after + b"null}]", after + b'"%s"}]' % reason, usage)


def _usage(prompt_tokens: int, tokens: int, cached_tokens: int) -> dict[str, Any]:
    return {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": tokens,
        "total_tokens": prompt_tokens + tokens,
        "prompt_tokens_details": {"cached_tokens": cached_tokens},
    }


def _encoded_usage(ticket: Ticket, tokens: int) -> bytes:
    return msgspec.json.encode(_usage(ticket.submitted.prompt_tokens, tokens, ticket.request.cached_tokens))


async def _disconnected(receive: Callable[[], Awaitable[Any]]) -> None:
    """Return when the client has gone."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def _send_whole(response: Response, send: Send) -> None:
    await send(
        {"type": "http.response.start", "status": response.status_code, "headers": response.raw_headers}
    )
    await send({"type": "http.response.body", "body": response.body})
