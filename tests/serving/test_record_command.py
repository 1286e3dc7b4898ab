"""simlora-record: the trace that becomes of what clients have asked for."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx
import pandas as pd

from tests.cli.command import python
from tests.serving.conftest import listens, live
from tests.serving.upstreams import HELLO, says


def recorded(folder: Path, bodies: Sequence[dict[str, Any]], *options: str) -> tuple[int, str, str]:
    """Return the command's exit status, stdout and stderr, which is interrupted when it has been asked."""
    process = subprocess.Popen(
        [*python("simlora-record"), "trace.csv", "--port", "0", *options],
        cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    found = re.match(r"(http://127\.0\.0\.1:[0-9]+) hands requests on to", process.stdout.readline())
    assert found is not None
    for body in bodies:
        httpx.post(f"{found[1]}/v1/completions", json=body, timeout=30)
    os.kill(process.pid, signal.SIGINT)
    out, errors = process.communicate(timeout=60)
    return process.returncode, out, errors


def test_the_command_writes_a_trace_of_what_clients_asked_for(tmp_path: Path) -> None:
    options = ["--rank", "16", "--base-model", "llama_7b", "--base-model", "one-that-gets-no-request"]
    asked = (("adapter_1", True), ("llama_7b", False), ("adapter_2", True), ("unknown", False))
    bodies = [{**HELLO, "model": model, "stream": stream} for model, stream in asked]
    with listens(live()) as (upstream,):
        status, out, errors = recorded(tmp_path, bodies, "--upstream", upstream, *options)
    assert status == 0, errors
    assert "4 completions: trace.log.jsonl" in out
    trace = pd.read_csv(tmp_path / "trace.csv")
    assert trace["adapter"].fillna("").tolist() == ["adapter_1", "", "adapter_2"]
    assert trace["output_tokens"].tolist() == [6, 6, 6]
    assert trace["arrival_s"].is_monotonic_increasing


def test_requests_without_a_model_are_the_base_model_s_in_the_trace(tmp_path: Path) -> None:
    bodies = [{"prompt": "Hi", "max_tokens": 2}, HELLO]
    with says(b'{"usage": {"prompt_tokens": 1, "completion_tokens": 2}}') as (address, _):
        status, _, errors = recorded(
            tmp_path, bodies, "--upstream", address, "--rank", "16", "--base-model", "llama_7b"
        )
    assert status == 0, errors
    assert pd.read_csv(tmp_path / "trace.csv")["adapter"].fillna("").tolist() == ["", "adapter_1"]


def test_no_trace_is_written_where_no_completion_was_answered(tmp_path: Path) -> None:
    status, out, errors = recorded(
        tmp_path, [HELLO, HELLO], "--upstream", "http://127.0.0.1:9", "--rank", "16"
    )
    assert status == 2
    assert "2 completions: trace.log.jsonl" in out
    (sentence,) = errors.splitlines()
    assert (
        "2 completions, none of which was answered with tokens (status 502 in 2): no trace is written"
        in sentence
    )
    assert not (tmp_path / "trace.csv").exists()
