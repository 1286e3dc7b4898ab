"""simlora-record: what a proxy hands on, what it keeps of completions, and the trace that becomes of it."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pandas as pd
import pytest

from simlora.cli.record import main
from simlora.core.errors import InputError
from simlora.serving.filler import text_of
from simlora.serving.proxy import CompletionLog, proxy
from tests.serving.conftest import asked_of, listens, live, serves

HELLO = {"model": "adapter_1", "prompt": "Hello, how are you?", "max_tokens": 6, "ignore_eos": True}
RECORD = [sys.executable, "-c", "import sys; from simlora.cli.record import main; sys.exit(main())"]


@pytest.fixture(scope="module")
def upstream() -> Iterator[str]:
    """A live cluster that answers at twenty times its pace."""
    with listens(live()) as (address,):
        yield address


@pytest.fixture
def log(tmp_path: Path) -> Iterator[CompletionLog]:
    """A log without entries."""
    found = CompletionLog(tmp_path / "seen.log.jsonl")
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
    unknown, unreadable = ask(upstream, log, {**HELLO, "model": "nobody"}, b"{")
    assert (unknown.status_code, unreadable.status_code) == (404, 400)
    assert [(entry["model"], entry["status"]) for entry in entries(log)] == [("nobody", 404)]


def test_a_server_that_is_not_there_is_a_bad_gateway(log: CompletionLog) -> None:
    (found,) = ask("http://127.0.0.1:9", log, HELLO)
    assert found.status_code == 502
    assert "cannot be reached" in found.json()["error"]["message"]
    assert [entry["status"] for entry in entries(log)] == [502]


def test_the_command_writes_a_trace_of_what_clients_asked_for(upstream: str, tmp_path: Path) -> None:
    options = ["trace.csv", "--upstream", upstream, "--port", "0", "--rank", "16", "--base-model", "llama_7b"]
    options += ["--base-model", "one-that-gets-no-request"]
    process = subprocess.Popen(
        [*RECORD, *options], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    found = re.match(r"(http://127\.0\.0\.1:[0-9]+) hands requests on to", process.stdout.readline())
    assert found is not None
    for model, stream in (("adapter_1", True), ("llama_7b", False), ("adapter_2", True), ("nobody", False)):
        httpx.post(f"{found[1]}/v1/completions", json={**HELLO, "model": model, "stream": stream}, timeout=30)
    os.kill(process.pid, signal.SIGINT)
    out, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors
    assert "4 completions: trace.log.jsonl" in out
    trace = pd.read_csv(tmp_path / "trace.csv")
    assert trace["adapter"].fillna("").tolist() == ["adapter_1", "", "adapter_2"]
    assert trace["output_tokens"].tolist() == [6, 6, 6]
    assert trace["arrival_s"].is_monotonic_increasing


def test_a_log_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be written: No such file"):
        CompletionLog(tmp_path / "no" / "log.jsonl")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("trace.csv", "--upstream", "localhost:8000"), "--upstream localhost:8000 must begin with http"),
        (("trace.txt", "--upstream", "http://a"), "trace.txt"),
        (("no/trace.csv", "--upstream", "http://a", "--port", "0"), "cannot be written: No such file"),
    ],
)
def test_what_cannot_be_is_one_sentence(
    words: tuple[str, ...],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(words) == 2
    (sentence,) = capsys.readouterr().err.splitlines()
    assert message in sentence
