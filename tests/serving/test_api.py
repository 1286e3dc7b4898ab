"""vLLM's HTTP API: what each endpoint answers, and what it says is wrong."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from packaging.version import Version

from simlora.core.errors import InputError
from simlora.engine.cluster.submissions import Submitted
from simlora.serving.app import app
from simlora.serving.filler import TEXT, text_of
from simlora.serving.live import Wishes
from tests.serving.conftest import SLORA, VLLM, asked, get, live, post
from tests.traces import workload

PROMPT = {"prompt": "Hello, how are you?", "max_tokens": 5, "ignore_eos": True}
CHAT = {"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 5, "ignore_eos": True}


def events(text: str) -> list[Any]:
    """The events of a stream; the last one, [DONE], as text."""
    lines = [line.removeprefix("data: ") for line in text.split("\n\n") if line]
    return [line if line == "[DONE]" else json.loads(line) for line in lines]


@pytest.mark.parametrize("prompt", [PROMPT["prompt"], [5, 6, 7, 8, 9], [[5, 6, 7, 8, 9]]])
def test_a_completion_of_a_text_or_of_token_ids(prompt: Any) -> None:
    found = post(live().fronts[0], "/v1/completions", PROMPT | {"model": "adapter_1", "prompt": prompt})
    assert found.status_code == 200
    body = found.json()
    (choice,) = body["choices"]
    assert (body["object"], body["model"]) == ("text_completion", "adapter_1")
    assert (choice["text"], choice["finish_reason"]) == (text_of(5), "length")
    assert choice["text"].startswith(TEXT[:10])
    counts = {"prompt_tokens": 5, "completion_tokens": 5, "total_tokens": 10}
    assert {name: body["usage"][name] for name in counts} == counts


def test_a_stream_of_a_completion() -> None:
    body = PROMPT | {
        "stream": True,
        "stream_options": {"include_usage": True, "continuous_usage_stats": True},
    }
    found = post(live().fronts[0], "/v1/completions", body)
    assert found.headers["content-type"].startswith("text/event-stream")
    *tokens, usage, done = events(found.text)
    assert done == "[DONE]"
    assert "".join(each["choices"][0]["text"] for each in tokens) == text_of(5)
    assert [each["choices"][0]["finish_reason"] for each in tokens] == [None] * (len(tokens) - 1) + ["length"]
    assert tokens[-1]["usage"]["completion_tokens"] == usage["usage"]["completion_tokens"] == 5
    assert usage["choices"] == []


def test_a_chat_and_its_stream() -> None:
    whole = post(live().fronts[0], "/v1/chat/completions", CHAT).json()
    assert whole["object"] == "chat.completion"
    assert whole["choices"][0]["message"] == {"role": "assistant", "content": text_of(5)}
    streamed = post(live().fronts[0], "/v1/chat/completions", CHAT | {"stream": True})
    first, *tokens, done = events(streamed.text)
    assert first["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert "".join(each["choices"][0]["delta"]["content"] for each in tokens) == text_of(5)
    assert done == "[DONE]"


def test_answers_are_as_long_as_a_trace_s_one_after_the_other_whichever_replica_gives_them(
    tmp_path: Path,
) -> None:
    trace = workload(tmp_path, "0,a,8,10,3", "1,b,8,10,5", "2,a,8,10,2")
    given = ("gpu=a10g", "model=llama_7b", *trace, "report=false")
    fronts = live(
        *given, "cluster.replicas=2", wishes=Wishes(speed=1000.0, per_replica=True, in_order=True)
    ).fronts
    open_ended = {"prompt": PROMPT["prompt"]}
    lengths = [
        post(fronts[at % 2], "/v1/completions", open_ended | {"model": "a"}).json()["usage"][
            "completion_tokens"
        ]
        for at in range(4)
    ]
    assert lengths == [3, 5, 2, 3]
    with pytest.raises(InputError, match="--output-tokens gives all answers one length"):
        Wishes(output_tokens=3, in_order=True)


SEVERAL = PROMPT | {"prompt": ["word " * 16, "word " * 2], "n": 2, "max_tokens": 5, "ignore_eos": True}


def test_several_prompts_and_several_answers_to_each_are_requests_of_their_own() -> None:
    front = live(wishes=Wishes(speed=1000.0)).fronts[0]
    whole = post(front, "/v1/completions", SEVERAL).json()
    assert [each["index"] for each in whole["choices"]] == [0, 1, 2, 3]
    assert {each["text"] for each in whole["choices"]} == {text_of(5)}
    assert whole["usage"] == {
        "prompt_tokens": 20 + 3,
        "completion_tokens": 4 * 5,
        "total_tokens": 43,
        "prompt_tokens_details": {"cached_tokens": 0},
    }
    ids = {"prompt": [[7] * 40, [7] * 50], "n": 2}
    caches = live(*VLLM, "replica.prefix_caching=true", wishes=Wishes(speed=1000.0)).fronts[0]
    post(caches, "/v1/completions", PROMPT | {"prompt": [7] * 60})
    usage = post(caches, "/v1/completions", PROMPT | ids).json()["usage"]
    assert usage["prompt_tokens_details"] == {"cached_tokens": 32 + 48}, "of each prompt once"
    chat = post(front, "/v1/chat/completions", CHAT | {"n": 3}).json()
    assert [each["message"]["role"] for each in chat["choices"]] == ["assistant"] * 3
    rows = front.cluster.close().requests()
    assert rows.prompt_tokens.tolist()[:4] == [20, 20, 3, 3]
    assert len(rows) == 4 + 3


def test_their_tokens_come_in_one_stream_by_choice() -> None:
    asked_for = SEVERAL | {"stream": True, "stream_options": {"include_usage": True}}
    *tokens, usage, done = events(post(live().fronts[0], "/v1/completions", asked_for).text)
    texts, order, reasons = ["", "", "", ""], [], []
    for each in tokens:
        (choice,) = each["choices"]
        texts[choice["index"]] += choice["text"]
        order.append(choice["index"])
        reasons += [choice["finish_reason"]] if choice["finish_reason"] else []
    assert texts == [text_of(5)] * 4
    assert reasons == ["length"] * 4
    assert order != sorted(order), "side by side"
    assert (usage["usage"]["completion_tokens"], done) == (20, "[DONE]")


def test_if_one_of_them_is_not_served_none_is() -> None:
    front = live(*SLORA, "cluster.max_outstanding=2", wishes=Wishes(speed=1.0)).fronts[0]
    for stream in (False, True):
        refused = post(front, "/v1/completions", SEVERAL | {"max_tokens": 1900, "stream": stream})
        assert refused.status_code == 503
    rows = front.cluster.close().requests()
    assert "rejected" in set(rows.status)
    assert rows.output_tokens[rows.status == "finished"].max() < 10, "what runs ends with the step under way"


def test_if_a_replica_takes_one_of_them_along_the_others_end() -> None:
    """Behind a port of its own. What is not served is no drift of the server."""
    front = live(*SLORA, wishes=Wishes(speed=1.0, per_replica=True)).fronts[0]

    async def ask(client: Any) -> Any:
        answer = asyncio.ensure_future(client.post("/v1/completions", json=SEVERAL | {"max_tokens": 1900}))
        await asyncio.sleep(0.3)
        await client.post("/simlora/faults", json={"kind": "fail"})
        return await answer

    assert asked(front, ask).status_code == 503
    assert (front.cluster.drift.tally.count, front.cluster.open_requests) == (0, 0)


def test_answers_that_are_left_open_are_as_long_as_the_workloads() -> None:
    front = live(wishes=Wishes(speed=1000.0)).fronts[0]
    found = [post(front, "/v1/completions", {"prompt": "x", "max_tokens": 2000}).json() for _ in range(3)]
    assert {each["choices"][0]["finish_reason"] for each in found} == {"stop"}
    fixed = live(wishes=Wishes(speed=1000.0, output_tokens=7)).fronts[0]
    answer = post(fixed, "/v1/chat/completions", {"messages": [{"role": "user", "content": [{"text": "a"}]}]})
    assert answer.json()["usage"]["completion_tokens"] == 7
    least = post(fixed, "/v1/completions", {"prompt": "x", "max_tokens": 20, "min_tokens": 11}).json()
    assert least["usage"]["completion_tokens"] == 11


NO_PROMPT = "prompt must be a text, token ids"


@pytest.mark.parametrize(
    ("path", "body", "message"),
    [
        ("completions", b"{", "Input data was truncated"),
        ("completions", b"[" * 20000, ""),
        ("completions", {"max_tokens": 5}, "missing required field `prompt`"),
        ("completions", PROMPT | {"max_tokens": 0}, "Expected `int` >= 1 - at `$.max_tokens`"),
        *(("completions", PROMPT | {"prompt": no}, NO_PROMPT) for no in ([], ["a", [1, 2]], [[1], [-1]])),
        (
            "completions",
            PROMPT | {"n": 2, "temperature": 0},
            "n must be 1 when using greedy sampling, got 2.",
        ),
        (
            "completions",
            PROMPT | {"prompt": [[1]] * 2000},
            "2000 answers are asked for, must be at most 1024",
        ),
        ("completions", PROMPT | {"prompt": [], "n": 200}, "Expected `int` <= 128"),
        ("completions", PROMPT | {"model": "unknown"}, "The model `unknown` does not exist."),
        ("completions", PROMPT | {"max_tokens": 10**6}, "maximum context length"),
        ("completions", PROMPT | {"min_tokens": 9}, "min_tokens is 9, must be at most max_tokens=5"),
        ("chat/completions", {"messages": []}, "length >= 1"),
        (
            "chat/completions",
            {"messages": [{"role": "user", "content": 5}]},
            "messages[0].content is no text",
        ),
    ],
)
def test_what_is_bad_is_said(path: str, body: Any, message: str) -> None:
    found = post(live().fronts[0], f"/v1/{path}", body)
    error = found.json()["error"]
    assert message in error["message"]
    assert found.status_code == error["code"] == (404 if "does not exist" in message else 400)


def test_a_body_that_is_too_large_is_not_read() -> None:
    front = live(wishes=Wishes(max_body_bytes=100)).fronts[0]
    assert post(front, "/v1/completions", PROMPT | {"prompt": "x" * 200}).status_code == 413
    assert post(front, "/v1/completions", PROMPT).status_code == 200


def test_a_request_that_could_never_run_is_refused() -> None:
    """Its tokens fit the KV pool, but not with its adapter."""
    front = live(*SLORA, "replica.kv_token_budget=4000", wishes=Wishes(max_model_len=4000)).fronts[0]
    asks = {"model": front.adapters.names()[0], "prompt": "x" * 4 * 3_990, "max_tokens": 5}
    found = post(front, "/v1/completions", asks)
    assert found.status_code == 422
    assert "could never run here, because" in found.json()["error"]["message"]


def test_a_full_cluster_says_503() -> None:
    front = live(*SLORA, "cluster.max_outstanding=2").fronts[0]

    async def ask(client: Any) -> list[Any]:
        body = PROMPT | {"max_tokens": 200}
        return await asyncio.gather(*(client.post("/v1/completions", json=body) for _ in range(4)))

    found = asked(front, ask)
    assert sorted(each.status_code for each in found) == [200, 200, 503, 503]
    refused = next(each for each in found if each.status_code == 503)
    assert "cluster.max_outstanding" in refused.json()["error"]["message"]
    assert "retry-after" not in refused.headers, "it does not know when there will be room"


def test_a_full_cluster_stays_full_when_a_client_leaves_before_its_request_has_arrived() -> None:
    """The front end reads a tokenizer for each new adapter, in which time its request is not in the cluster yet."""
    simulation = live(*VLLM, "cluster.max_outstanding=2").fronts[0].cluster.simulation
    for adapter in (0, 1):
        simulation.submit(Submitted(10, 3000, adapter))
        simulation.advance(simulation.clock.now + 1.0)
    simulation.submit(Submitted(10, 5, 2))
    simulation.cancel(simulation.submit(Submitted(10, 5, 3)))
    simulation.advance(simulation.clock.now + 1.0)
    for _ in range(3):
        simulation.submit(Submitted(10, 5, 0))
    expected = ["finished", "finished", "rejected", "aborted", "rejected", "rejected", "rejected"]
    assert simulation.close().requests()["status"].tolist() == expected


def test_an_adapter_past_its_rate_says_429_and_when_to_come_back() -> None:
    """Its bucket gets a token in 1,000 simulated seconds, which are 50 wall seconds here."""
    front = live(*SLORA, "cluster.adapter_rps=0.001", "cluster.adapter_burst=2").fronts[0]
    codes = [post(front, "/v1/completions", PROMPT).status_code for _ in range(3)]
    assert codes == [200, 200, 429]
    answer = post(front, "/v1/completions", PROMPT)
    assert 40 <= int(answer.headers["retry-after"]) <= 50
    refused = answer.json()["error"]
    assert (refused["type"], refused["code"]) == ("RateLimitError", 429)
    assert "cluster.adapter_rps" in refused["message"]


def test_a_body_whose_client_leaves_before_its_end_is_no_request() -> None:
    front = live().fronts[0]
    scope = {"type": "http", "method": "POST", "path": "/v1/completions", "headers": [], "query_string": b""}

    async def run() -> list[Any]:
        sent: list[Any] = []
        received = iter(
            [
                {"type": "http.request", "body": b'{"prom', "more_body": True},
                {"type": "http.disconnect"},
            ]
        )

        async def receive() -> Any:
            return next(received)

        async def send(message: Any) -> None:
            sent.append(message)

        await app(front, [front])(scope, receive, send)
        return sent

    assert asyncio.run(run()) == []
    assert front.cluster.open_requests == 0


def test_a_long_prompt_is_counted_beside_the_streams() -> None:
    front = live().fronts[0]
    assert post(front, "/tokenize", {"prompt": "x" * 400_002}).json()["count"] == 100_001


def test_requests_are_as_long_as_the_model_s_window_and_kv_allow() -> None:
    assert get(live().fronts[0], "/v1/models").json()["data"][0]["max_model_len"] == 2048
    small = (*SLORA, "replica.kv_token_budget=1000")
    assert get(live(*small).fronts[0], "/v1/models").json()["data"][0]["max_model_len"] == 1000
    with pytest.raises(InputError, match=r"--max-model-len is 1001, must be .* at most 1,000"):
        live(*small, wishes=Wishes(max_model_len=1001))


@pytest.mark.parametrize(("asked_for", "reason"), [({}, "stop"), ({"max_tokens": 20}, "length")])
def test_an_answer_ends_for_its_length_only_where_its_client_set_it(asked_for: Any, reason: str) -> None:
    front = live(wishes=Wishes(speed=1000.0, output_tokens=20)).fronts[0]
    chat = {"messages": [{"role": "user", "content": "Hello"}], **asked_for}
    found = post(front, "/v1/chat/completions", chat).json()
    assert (found["usage"]["completion_tokens"], found["choices"][0]["finish_reason"]) == (20, reason)


def test_models_health_version_and_tokens(tmp_path: Path) -> None:
    front = live(wishes=Wishes(served_model_name="meta")).fronts[0]
    models = get(front, "/v1/models").json()["data"]
    assert (models[0]["id"], models[0]["parent"]) == ("meta", None)
    assert models[1]["parent"] == "meta"
    assert len(models) == 201
    assert get(front, "/health").status_code == get(front, "/ping").status_code == 200
    assert Version(get(front, "/version").json()["version"]).local == "simlora", "as clients read a version"
    assert get(front, "/v1/nothing").status_code == 404
    assert get(front, "/v1/completions").json()["error"]["code"] == 405
    assert get(front, "/simlora/alive").status_code == 200
    found = post(front, "/tokenize", {"prompt": "abcdefgh"}).json()
    assert (found["count"], len(found["tokens"])) == (2, 2)
    assert post(front, "/tokenize", {"messages": CHAT["messages"]}).json()["count"] > 1
    assert post(front, "/tokenize", {}).status_code == 400


def test_a_tokenizer_of_a_file_counts(tmp_path: Path) -> None:
    tokenizers = pytest.importorskip("tokenizers")
    words = tokenizers.Tokenizer(tokenizers.models.WordLevel({"[UNK]": 0, "a": 1, "b": 2}, unk_token="[UNK]"))
    words.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    words.save(str(tmp_path / "tokenizer.json"))
    front = live(wishes=Wishes(tokenizer=tmp_path / "tokenizer.json")).fronts[0]
    assert post(front, "/tokenize", {"prompt": "a b a"}).json()["tokens"] == [1, 2, 1]
    assert post(front, "/v1/completions", PROMPT | {"prompt": "a b a"}).json()["usage"]["prompt_tokens"] == 3


def test_adapters_are_loaded_and_unloaded(tmp_path: Path) -> None:
    front = live(*VLLM).fronts[0]
    (tmp_path / "adapter_config.json").write_text('{"r": 4}')

    def load(name: str, path: str = "", load_inplace: bool = False, **headers: str) -> tuple[int, str]:
        body = {"lora_name": name, "lora_path": path, "load_inplace": load_inplace}
        found = post(front, "/v1/load_lora_adapter", body, **headers)
        return found.status_code, found.text

    assert load("acme-r8") == (200, "Success: LoRA adapter 'acme-r8' added successfully.")
    assert load("beta", str(tmp_path))[0] == 200
    assert load("gamma", **{"x-lora-rank": "2"})[0] == 200
    assert front.cluster.simulation.adapters[-3].rank == 8
    assert [each.rank for each in front.cluster.simulation.adapters[-2:]] == [4, 2]
    assert load("acme-r8")[0] == load("llama_3_1_8b")[0] == 400
    assert "The rank of the lora adapter 'delta' is not known" in load("delta")[1]
    assert load("delta", **{"x-lora-rank": "much"})[0] == 400
    assert load("delta-r8", **{"x-lora-rank": "0"})[0] == 400
    assert load("two\nlines-r8")[0] == load(" padded-r8")[0] == load("one,two-r8")[0] == 400
    assert load("delta", **{"x-lora-rank": "9" * 5000})[0] == 400
    assert load("delta-r1024")[0] == 400, "no slot holds it"
    answer = post(front, "/v1/completions", PROMPT | {"model": "acme-r8"})
    assert answer.status_code == 200
    assert front.cluster.simulation.recorder.adapter_loads == 1
    unloaded = post(front, "/v1/unload_lora_adapter", {"lora_name": "acme-r8"})
    assert unloaded.text == "Success: LoRA adapter 'acme-r8' removed successfully."
    assert post(front, "/v1/unload_lora_adapter", {"lora_name": "acme-r8"}).status_code == 404
    assert post(front, "/v1/completions", PROMPT | {"model": "acme-r8"}).status_code == 404
    assert load("acme-r8")[0] == 200
    assert load("acme-r8", load_inplace=True)[0] == 200
    post(front, "/v1/completions", PROMPT | {"model": "acme-r8"})
    (replica,) = get(front, "/simlora/state").json()["replicas"]
    assert "acme-r8" in {each["name"] for each in replica["adapters"]}, (
        "by its own name, each time it was loaded"
    )
    assert post(front, "/v1/completions", PROMPT | {"model": "acme-r8"}).status_code == 200
    assert front.cluster.simulation.recorder.adapter_loads == 2, "loaded anew, as another adapter"


def test_an_adapter_that_is_loaded_and_unloaded_again_and_again_needs_no_more_memory() -> None:
    """Once its weights have left; another rank is another adapter."""
    front = live(*VLLM, "replica.max_loras=1").fronts[0]
    adapters, named = front.cluster.simulation.adapters, {"lora_name": "acme"}
    known = len(adapters)

    def serve(name: str) -> None:
        assert post(front, "/v1/completions", PROMPT | {"model": name}).status_code == 200

    def load(rank: int) -> None:
        assert post(front, "/v1/load_lora_adapter", named | {"rank": rank}).status_code == 200
        serve("acme")
        assert post(front, "/v1/unload_lora_adapter", named).status_code == 200

    load(8)
    load(8)
    assert len(adapters) == known + 2, "its weights were in the slot"
    for _ in range(3):
        serve("adapter_0")
        load(8)
    assert len(adapters) == known + 2
    serve("adapter_0")
    load(4)
    assert [each.rank for each in adapters[known:]] == [8, 8, 4]
    assert front.cluster.simulation.recorder.adapter_loads == 2 + 2 * 4


def test_a_prefix_that_came_before_is_cached_for_its_adapter_only() -> None:
    front = live(*VLLM, "replica.prefix_caching=true").fronts[0]
    names = front.adapters.names()
    body = PROMPT | {"prompt": "All happy families are alike; " * 40, "model": names[0]}

    def cached_tokens(model: str) -> int:
        found = post(front, "/v1/completions", body | {"model": model}).json()
        return int(found["usage"]["prompt_tokens_details"]["cached_tokens"])

    assert cached_tokens(names[0]) == 0
    assert cached_tokens(names[0]) >= 240
    assert cached_tokens(names[1]) == 0
    assert get(front, "/metrics").text.count("vllm:prefix_cache_hits_total") > 1


def test_no_prefix_is_asked_for_without_a_cache() -> None:
    front = live(*VLLM, "replica.prefix_caching=false").fronts[0]
    post(front, "/v1/completions", PROMPT)
    assert 'vllm:prefix_cache_queries_total{engine="0"' in (text := get(front, "/metrics").text)
    assert {line.split()[-1] for line in text.splitlines() if line.startswith("vllm:prefix_cache_q")} == {
        "0.0"
    }
