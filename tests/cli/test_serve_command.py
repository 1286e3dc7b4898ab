"""simlora-serve, as a user types it."""

import json
import os
import re
import signal
import socket
import subprocess
from pathlib import Path

import httpx
import pandas as pd

from tests.cli.command import python
from tests.traces import csv

RUN = ("gpu=a10g", "model=llama_7b", "workload.duration_s=3", "report=false")
SERVE = python("simlora-serve")


def test_it_serves_until_it_is_asked_to_stop_and_keeps_what_was_seen(tmp_path):
    options = ["--port", "0", "--speed", "10", "--record", "seen.csv", "--results", "out"]
    process = subprocess.Popen(
        [*SERVE, *options, *RUN], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    lines = [process.stdout.readline() for _ in range(3)]
    assert lines[0].startswith("serving slora on 1 x a10g, model llama_7b and 200 adapters, at 10 simulated")
    found = re.search(r"listening on (http://127\.0\.0\.1:[0-9]+)", lines[1])
    assert found is not None, lines
    answer = httpx.post(
        f"{found[1]}/v1/completions", json={"prompt": "Hello", "max_tokens": 4, "ignore_eos": True}
    )
    assert answer.status_code == 200
    os.kill(process.pid, signal.SIGINT)
    out, errors = process.communicate(timeout=30)
    complaints = [
        line for line in errors.splitlines() if "falls behind" not in line
    ]  # as a busy machine does
    assert (process.returncode, complaints) == (0, [])
    assert out == "1 requests: seen.csv\nResults: out\n"
    assert pd.read_csv(tmp_path / "seen.csv").output_tokens.tolist() == [4]
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert summary["requests"]["finished"] == 1


def test_it_plays_a_record_once_more_with_what_else_happened(tmp_path):
    csv(tmp_path, "0,,,9,400", "1.5,,,9,4", name="seen.csv")
    fails = {"what": "failure", "time_s": 1.0, "host": 0, "at_s": 1.0, "until_s": 3.0}
    (tmp_path / "seen.events.jsonl").write_text(json.dumps(fails) + "\n")

    command = [*SERVE, "--replay", "seen.csv", "--results", "again", *RUN]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "Results: again\n", "")
    requests = pd.read_parquet(tmp_path / "again" / "requests.parquet")
    assert requests.admitted_s.tolist() == [0.0, 3.0]
    assert requests.finish_s.min() > 3.0


def test_a_port_that_is_taken_leaves_an_earlier_record_as_it_is(tmp_path):
    (tmp_path / "seen.csv").write_text("earlier")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        options = ["--port", str(taken.getsockname()[1]), "--record", "seen.csv", *RUN]
        ended = subprocess.run([*SERVE, *options], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (ended.returncode, "cannot listen on" in ended.stderr) == (2, True)
    assert (tmp_path / "seen.csv").read_text() == "earlier"


def test_without_a_web_server_it_says_what_to_install(tmp_path):
    (tmp_path / "uvicorn.py").write_text(
        "raise ModuleNotFoundError('No module named uvicorn', name='uvicorn')"
    )
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{Path(__file__).resolve().parents[2]}"}
    ended = subprocess.run([*SERVE, *RUN], env=environment, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (
        2,
        "simlora: error: simlora-serve needs a web server: pip install 'simlora[serve]' (uvicorn is not installed)\n",
    )
