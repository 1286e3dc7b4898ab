"""Real clients that ask a live server for streamed answers, and what each says that it measured.

All of them ask at times of a Poisson process, except Locust, whose users ask at a constant rate each.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import openai
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from experiments.serving.load import PROMPT, arrivals_s, load, run

LOCUSTFILE = Path(__file__).with_name("locustfile.py")
USERS = 200
"""Of Locust: one waits for its answer before it asks again. With 100 each asks every 5 s at 20/s, which is just when
the server, as vLLM does, closes connections that are idle: some requests met one that was about to close."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What a client asks of a server; `folder` is its own."""

    address: str
    adapters: Sequence[str]
    requests: int
    rate_rps: float
    output_tokens: int
    folder: Path


@dataclass(frozen=True, slots=True)
class Measured:
    """What a client says: medians over requests, and the rate until the last answer.

    `time_per_token_s` is from a request's first token to its last, over the tokens after the first.
    """

    answered: int
    failed: int
    first_token_s: float
    time_per_token_s: float
    rate_rps: float


def own(asked: Asked, program: str) -> Measured:
    """Measure by the small client of `experiments.serving.load`."""
    seen = run(load(asked.address, asked.rate_rps, asked.output_tokens, asked.adapters, asked.requests))
    return _medians(seen.first_token_s, seen.time_per_token_s, seen.failed, seen.seconds)


def by_openai(asked: Asked, program: str) -> Measured:
    """Measure by OpenAI's own package."""
    return asyncio.run(_by_openai(asked))


async def _by_openai(asked: Asked) -> Measured:
    client = openai.AsyncOpenAI(base_url=f"{asked.address}/v1", api_key="none", max_retries=0, timeout=600)
    first_token_s, time_per_token_s = [], []

    async def ask(adapter: str) -> None:
        began_s = time.perf_counter()
        stream = await client.completions.create(
            model=adapter,
            prompt=PROMPT,
            max_tokens=asked.output_tokens,
            stream=True,
            extra_body={"ignore_eos": True},
        )
        times_s = [time.perf_counter() async for chunk in stream if chunk.choices[0].text]
        first_token_s.append(times_s[0] - began_s)
        time_per_token_s.append((times_s[-1] - times_s[0]) / (asked.output_tokens - 1))

    began_s = time.perf_counter()
    answers = []
    for number, due_s in enumerate(arrivals_s(asked.rate_rps, asked.requests)):
        await asyncio.sleep(began_s + due_s - time.perf_counter())
        answers.append(asyncio.ensure_future(ask(asked.adapters[number % len(asked.adapters)])))
    ended = await asyncio.gather(*answers, return_exceptions=True)
    seconds = time.perf_counter() - began_s
    failed = sum(each is not None for each in ended)
    return _medians(first_token_s, time_per_token_s, failed, seconds)


def aiperf(asked: Asked, program: str) -> Measured:
    """Measure by NVIDIA's AIPerf."""
    _called(
        [
            *(program, "profile", "--model", ",".join(asked.adapters)),
            *("--model-selection-strategy", "random"),
            *("--url", asked.address, "--endpoint-type", "completions", "--streaming", "--ui", "none"),
            *("--request-count", str(asked.requests), "--request-rate", str(asked.rate_rps)),
            *("--random-seed", "0", "--synthetic-input-tokens-mean", str(len(PROMPT))),
            *("--output-tokens-mean", str(asked.output_tokens), "--extra-inputs", "ignore_eos:true"),
            *("--use-server-token-count", "--tokenizer", str(_tokenizer(asked.folder / "tokenizer"))),
            *("--artifact-dir", str(asked.folder)),
        ]
    )
    said = json.loads((asked.folder / "profile_export_aiperf.json").read_text(encoding="utf-8"))
    return Measured(
        int(said["request_count"]["avg"]),
        int((said.get("error_request_count") or {"avg": 0})["avg"]),
        said["time_to_first_token"]["p50"] / 1e3,
        said["inter_token_latency"]["p50"] / 1e3,
        said["request_throughput"]["avg"],
    )


def guidellm(asked: Asked, program: str) -> Measured:
    """Measure by vLLM's GuideLLM, which asks one adapter, as it has one model a run."""
    row = json.dumps({"prompt": PROMPT, "output_tokens_count": asked.output_tokens})
    data, said_in = asked.folder / "data.jsonl", asked.folder / "said.json"
    data.write_text(f"{row}\n" * asked.requests, encoding="utf-8")
    _called(
        [
            *(program, "run", "--disable-console"),
            *("--backend", f"kind=openai_http,target={asked.address},model={asked.adapters[0]}"),
            *("--profile", f"kind=poisson,rate={asked.rate_rps}"),
            *("--constraint", f"kind=max_requests,count={asked.requests}"),
            *("--data", f"kind=json_file,path={data}", "--output", f"kind=json,path={said_in}"),
        ]
    )
    said = json.loads(said_in.read_text(encoding="utf-8"))["benchmarks"][0]
    metrics, requests = said["metrics"], said["requests"]["successful"]
    began_s = min(each["request_start_time"] for each in requests)
    seconds = max(each["request_end_time"] for each in requests) - began_s
    return Measured(
        metrics["request_totals"]["successful"],
        metrics["request_totals"]["errored"] + metrics["request_totals"]["incomplete"],
        metrics["time_to_first_token_ms"]["successful"]["median"] / 1e3,
        metrics["inter_token_latency_ms"]["successful"]["median"] / 1e3,
        len(requests) / seconds,
    )


def locust(asked: Asked, program: str) -> Measured:
    """Measure by Locust, whose users time the tokens of a stream (locustfile.py)."""
    said_in = asked.folder / "said.json"
    wanted = {
        "adapters": list(asked.adapters),
        "requests": asked.requests,
        "user_rps": asked.rate_rps / USERS,
        "prompt": PROMPT,
        "output_tokens": asked.output_tokens,
    }
    _called(
        [
            *(program, "--locustfile", str(LOCUSTFILE), "--headless", "--only-summary"),
            *("--host", asked.address),
            *("--users", str(USERS), "--spawn-rate", str(asked.rate_rps), "--stop-timeout", "600"),
        ],
        LOCUST_ASKED=json.dumps(wanted),
        LOCUST_SAID=str(said_in),
    )
    said: dict[str, Any] = json.loads(said_in.read_text(encoding="utf-8"))
    return _medians(said["first_token_s"], said["time_per_token_s"], said["failed"], said["seconds"])


CLIENTS: dict[str, Callable[[Asked, str], Measured]] = {
    "own": own,
    "openai": by_openai,
    "aiperf": aiperf,
    "guidellm": guidellm,
    "locust": locust,
}
"""By name; each takes what to ask, and the client's program where it is one."""


def _tokenizer(folder: Path) -> Path:
    """Write a tokenizer that takes a byte for a token, in the form of Hugging Face's; return its folder."""
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    made = Tokenizer(models.BPE(vocab={letter: number for number, letter in enumerate(letters)}, merges=[]))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)  # type: ignore[assignment]
    made.decoder = decoders.ByteLevel()  # type: ignore[assignment]
    folder.mkdir()
    made.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text('{"tokenizer_class": "PreTrainedTokenizerFast"}')
    return folder


def _medians(
    first_token_s: Sequence[float], time_per_token_s: Sequence[float], failed: int, seconds: float
) -> Measured:
    answered = len(first_token_s)
    return Measured(answered, failed, median(first_token_s), median(time_per_token_s), answered / seconds)


def _called(command: Sequence[str], **environment: str) -> None:
    """Run a client's program to its end; what it prints is shown if it fails."""
    found = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=os.environ | environment
    )
    if found.returncode:
        sys.exit(f"{command[0]} ended with status {found.returncode}:\n{found.stdout[-2000:]}")
