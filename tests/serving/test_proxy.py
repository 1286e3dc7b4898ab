"""The proxy of simlora-record: what it hands on, and what it keeps of completions."""

from __future__ import annotations

import gzip
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from simlora.core.errors import InputError
from simlora.serving.completion_log import CompletionLog
from simlora.serving.filler import text_of
from simlora.serving.proxy import proxy
from tests.serving.conftest import asked_of, listens, live, serves
from tests.serving.upstreams import HELLO, STREAM, says

DEEP = b"[" * 100_000


@pytest.fixture(scope="module")
def upstream() -> Iterator[str]:
    """A live cluster that answers at twenty times its pace."""
    with listens(live()) as (address,):
        yield address


@pytest.fixture
def log(tmp_path: Path) -> Iterator[CompletionLog]:
    """A log without entries."""
    found = CompletionLog(tmp_path / "seen.log.jsonl", "the-base-model")
    yield found
    found.close()


def entries(log: CompletionLog) -> list[dict[str, Any]]:
    """What is in a log."""
    return [json.loads(line) for line in log.path.read_text().splitlines()]


def ask(upstream: str, log: CompletionLog, *bodies: dict[str, Any] | bytes) -> list[httpx.Response]:
    """Return the answers to completions, asked for one after the other through a proxy."""

    async def each(client: httpx.AsyncClient) -> list[httpx.Response]:
        return [
            await client.post(
                "/v1/completions", content=body if isinstance(body, bytes) else json.dumps(body)
            )
            for body in bodies
        ]

    return asked_of(proxy(upstream, log), each)


def test_an_answer_is_handed_on_and_its_tokens_are_the_server_s_count(
    upstream: str, log: CompletionLog
) -> None:
    (found,) = ask(upstream, log, HELLO)
    assert found.json()["usage"]["completion_tokens"] == 6
    (entry,) = entries(log)
    assert {name: entry[name] for name in ("model", "status", "prompt_tokens", "completion_tokens", "max_tokens")} == {
        "model": "adapter_1", "status": 200, "prompt_tokens": 5, "completion_tokens": 6, "max_tokens": 6,
    }  # fmt: skip
    assert entry["ttft_s"] is None
    assert entry["latency_s"] > 0


@pytest.mark.parametrize("wanted", [True, False])
def test_a_stream_is_as_the_client_asked_for_it_and_its_usage_is_kept(
    upstream: str, log: CompletionLog, wanted: bool
) -> None:
    options = {"stream_options": {"include_usage": True}} if wanted else {}
    (found,) = ask(upstream, log, {**HELLO, "stream": True, **options})
    events = [line.removeprefix("data: ") for line in found.text.split("\n\n") if line]
    assert events[-1] == "[DONE]"
    assert "".join(json.loads(event)["choices"][0]["text"] for event in events[: -1 - wanted]) == text_of(6)
    assert sum("prompt_tokens" in event for event in events) == wanted
    (entry,) = entries(log)
    assert (entry["prompt_tokens"], entry["completion_tokens"]) == (5, 6)
    assert 0 < entry["ttft_s"] < entry["latency_s"]


@pytest.mark.parametrize(
    ("answer", "kind", "model"),
    [
        (b'{"model": "its-own"}', b"application/json", "its-own"),
        (b'data: {"model": "its-own", "choices": [1]}\n\ndata: [DONE]\n\n', STREAM, "its-own"),
        (b"{}", b"application/json", "the-base-model"),
        (b"data: [DONE]\n\n", STREAM, "the-base-model"),
    ],
)
def test_a_request_without_a_model_has_the_answer_s_or_else_the_base_model(
    log: CompletionLog, answer: bytes, kind: bytes, model: str
) -> None:
    with says(answer, kind) as (address, _):
        ask(address, log, {"prompt": "Hi", "max_tokens": 2}, {**HELLO, "model": "the-client-s"})
    assert [entry["model"] for entry in entries(log)] == [model, "the-client-s"]


def stream_of(*events: Any) -> bytes:
    """Return a stream of some events."""
    return b"".join(b"data: " + json.dumps(each).encode() + b"\n\n" for each in events)


PIECE = {"choices": [{"text": "a"}]}
ERRORS = [
    ({"code": 503}, 503),
    ({"message": "no code"}, 500),
    ({"code": "overloaded"}, 500),
    ({"code": 0}, 500),
]


@pytest.mark.parametrize(
    ("answer", "kind", "status"),
    [
        *((stream_of(PIECE, {"error": error}), STREAM, status) for error, status in ERRORS),
        (stream_of(PIECE, {"error": ""}), STREAM, 200),
        (stream_of(PIECE | {"usage": 5}), STREAM, 200),
        (DEEP, b"application/json", 200),
        (b"data: " + DEEP + b"\n\n", STREAM, 200),
    ],
)
def test_an_answer_is_handed_on_as_it_is_and_one_that_ends_with_an_error_has_the_status_of_that(
    log: CompletionLog, answer: bytes, kind: bytes, status: int
) -> None:
    with says(answer, kind) as (address, _):
        (found,) = ask(address, log, {**HELLO, "stream": kind == STREAM})
    assert found.content == answer
    assert [(entry["status"], entry["prompt_tokens"]) for entry in entries(log)] == [(status, None)]


@pytest.mark.parametrize(
    "body",
    [
        b'{"model" : "m",\n "prompt": "\xc3\xa9", "temperature": 1e-0}',
        b'{"stream":true, "stream_options" : {"include_usage":true}, "model":"m"}',
        b'{"stream":true, "stream_options":"which the server refuses"}',
    ],
)
def test_a_body_to_which_nothing_is_added_is_handed_on_to_the_byte(log: CompletionLog, body: bytes) -> None:
    with says(b"{}") as (address, heard):
        ask(address, log, body)
    assert [sent for _, sent in heard] == [body]


def test_usage_is_asked_for_beside_other_options_of_a_stream(log: CompletionLog) -> None:
    with says(b"data: [DONE]\n\n", STREAM) as (address, heard):
        ask(address, log, {**HELLO, "stream": True, "stream_options": {"include_obfuscation": False}})
    (sent,) = [json.loads(body) for _, body in heard]
    assert sent == {
        **HELLO, "stream": True, "stream_options": {"include_obfuscation": False, "include_usage": True},
    }  # fmt: skip


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/models"])
def test_headers_that_are_repeated_stay_apart(log: CompletionLog, path: str) -> None:
    cookies = [(b"set-cookie", b"a=1; expires=Mon, 1 Jan 2029"), (b"Set-Cookie", b"b=2")]

    async def post(client: httpx.AsyncClient) -> httpx.Response:
        return await client.post(path, json=HELLO, headers=[("x-tag", "one"), ("x-tag", "two")])

    with says(b"{}", b"application/json", *cookies) as (address, heard):
        found = asked_of(proxy(address, log), post)
    assert found.headers.get_list("set-cookie") == ["a=1; expires=Mon, 1 Jan 2029", "b=2"]
    assert [headers.getlist("x-tag") for headers, _ in heard] == [["one", "two"]]


def test_a_body_that_a_client_has_packed_stays_packed_and_says_so(log: CompletionLog) -> None:
    packed = gzip.compress(json.dumps(HELLO).encode())

    async def post(client: httpx.AsyncClient) -> httpx.Response:
        return await client.post("/v1/completions", content=packed, headers={"content-encoding": "gzip"})

    with says(b"{}") as (address, heard):
        asked_of(proxy(address, log), post)
    assert [(headers["content-encoding"], body) for headers, body in heard] == [("gzip", packed)]


def test_a_body_that_is_nested_too_deep_is_the_server_s_to_refuse(upstream: str, log: CompletionLog) -> None:
    found, _ = ask(upstream, log, b'{"model": "adapter_1", "prompt": ' + DEEP, HELLO)
    assert found.status_code == 400
    assert [entry["status"] for entry in entries(log)] == [200]


def test_a_stream_that_is_nested_as_deep_as_can_be_read_is_handed_on(log: CompletionLog) -> None:
    bodies = [b'{"stream": true, "a": %s}' % (b"[" * deep + b"]" * deep) for deep in range(800, 1000)]
    with says(b"data: [DONE]\n\n", STREAM) as (address, heard):
        found = ask(address, log, *bodies)
    assert {each.status_code for each in found} == {200}
    assert len(heard) == len(bodies)


def test_events_may_end_as_lines_of_http_do(log: CompletionLog) -> None:
    event = {"choices": [{"index": 0, "text": "a"}]}

    async def stream(scope: Any, receive: Any, send: Any) -> None:
        head = {"status": 200, "headers": [(b"content-type", b"text/event-stream")]}
        await send({"type": "http.response.start", **head})
        for text in (json.dumps(event), json.dumps(event), "[DONE]"):
            for piece in (f"data: {text}\r\n\r", "\n"):
                await send({"type": "http.response.body", "body": piece.encode(), "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    with serves([stream]) as (address,):
        (found,) = ask(address, log, {**HELLO, "stream": True})
    assert found.text.count("data: ") == 3
    (entry,) = entries(log)
    assert entry["completion_tokens"] == 2
    assert entry["ttft_s"] is not None


@pytest.mark.parametrize("head", [True, False], ids=["after the head", "before the head"])
@pytest.mark.parametrize("stream", [True, False], ids=["a stream", "a whole answer"])
def test_a_client_that_leaves_leaves_the_server_too(log: CompletionLog, head: bool, stream: bool) -> None:
    """The answer never ends by itself."""
    left = threading.Event()

    async def endless(scope: Any, receive: Any, send: Any) -> None:
        assert scope["type"] == "http", "it has no lifespan"
        kind = b"text/event-stream" if stream else b"application/json"
        if head:
            await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", kind)]})
            await send(
                {"type": "http.response.body", "body": b'data: {"choices": [1]}\n\n', "more_body": True}
            )
        while (await receive())["type"] != "http.disconnect":
            pass
        left.set()

    with serves([endless]) as (upstream,), serves([proxy(upstream, log)]) as (address,):
        with pytest.raises(httpx.ReadTimeout):
            httpx.post(f"{address}/v1/completions", json={**HELLO, "stream": stream}, timeout=0.5)
        assert left.wait(timeout=20)
    assert [entry["status"] for entry in entries(log)] == [499]


def test_what_is_no_completion_is_handed_on_and_not_kept(upstream: str, log: CompletionLog) -> None:
    async def look(client: httpx.AsyncClient) -> tuple[httpx.Response, httpx.Response]:
        return await client.get("/v1/models?a=1"), await client.post(
            "/tokenize", json={"prompt": "Hello, you"}
        )

    models, tokens = asked_of(proxy(upstream, log), look)
    assert len(models.json()["data"]) == 201
    assert tokens.json()["count"] == 3
    assert not entries(log)


def test_a_request_that_the_server_refuses_is_kept_with_its_status(upstream: str, log: CompletionLog) -> None:
    unknown, unreadable = ask(upstream, log, {**HELLO, "model": "unknown"}, b"{")
    assert (unknown.status_code, unreadable.status_code) == (404, 400)
    assert [(entry["model"], entry["status"]) for entry in entries(log)] == [("unknown", 404)]


def test_a_server_that_is_not_there_is_a_bad_gateway(log: CompletionLog) -> None:
    (found,) = ask("http://127.0.0.1:9", log, HELLO)
    assert found.status_code == 502
    assert "cannot be reached" in found.json()["error"]["message"]
    assert [entry["status"] for entry in entries(log)] == [502]


def test_a_log_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be written: No such file"):
        CompletionLog(tmp_path / "no" / "log.jsonl")


@pytest.mark.parametrize("line", ['{"status": 200', "[]", '{"status": 200}'])
def test_an_earlier_log_that_is_damaged_is_refused_before_anything_is_recorded(
    tmp_path: Path, line: str
) -> None:
    """The last one is whole, but its end of line is missing, so that the next entry would be on the same line."""
    path = tmp_path / "seen.log.jsonl"
    path.write_text('{"status": 200}\n' + line)
    with pytest.raises(InputError, match=r"seen\.log\.jsonl line 2 is not whole"):
        CompletionLog(path)


def test_a_path_is_handed_on_as_the_client_wrote_it(log: CompletionLog) -> None:
    async def echo(scope: Scope, receive: Receive, send: Send) -> None:
        await Response(scope["raw_path"] + b"?" + scope["query_string"])(scope, receive, send)

    with serves([echo]) as (address,):
        found = asked_of(proxy(address, log), lambda client: client.get("/v1/files/a%2Fb?x=%2F"))
    assert found.text == "/v1/files/a%2Fb?x=%2F"
