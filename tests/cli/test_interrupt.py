"""Ctrl-C keeps what was finished, and nothing that looks whole."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pandas as pd
import pytest

from tests.cli.command import Command

ENDLESS = "workload.duration_s=3e5"


def interrupt_when(process: subprocess.Popen[str], folder: Path, number: int) -> str:
    """Send a signal once the run's folder is there and simulating is under way; return stderr."""
    deadline = time.monotonic() + 60
    while not folder.exists():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline, "the run never began"
        time.sleep(0.05)
    time.sleep(2.0)
    process.send_signal(number)
    return process.communicate(timeout=60)[1]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_is_marked_as_incomplete(simlora: Command, number: int):
    process = simlora.start(ENDLESS, "hydra.run.dir=out")
    err = interrupt_when(process, simlora.folder / "out", number)
    assert process.returncode == 130, err
    assert simlora.files() == ["out", "out/requests.incomplete.parquet", "out/summary.incomplete.json"]
    summary = json.loads(Path("out/summary.incomplete.json").read_text())
    assert summary["complete"] is False
    requests = pd.read_parquet("out/requests.incomplete.parquet")
    counts = requests["status"].value_counts()
    assert set(counts.index) == {"finished", "unfinished"}
    assert counts["finished"] == summary["requests"]["finished"] > 0
    assert requests.loc[requests["status"] == "finished", "latency_s"].notna().all()
    assert requests.loc[requests["status"] == "unfinished", "finish_s"].isna().all()
    arrived = summary["requests"]["submitted"]
    assert arrived == (requests["arrival_s"] <= summary["makespan_s"]).sum() < len(requests)
    assert summary["load"]["label"] == "unknown"
    assert err == (
        f"simlora: interrupted; {counts['finished']:,} of the {arrived:,} requests so far were finished: "
        "out/requests.incomplete.parquet and summary.incomplete.json\n"
    )


def test_an_interrupt_ends_a_sweep(simlora: Command):
    process = simlora.start("-m", ENDLESS, "report=false", "seed=1,2", "hydra.sweep.dir=all")
    interrupt_when(process, simlora.folder / "all" / "0", signal.SIGINT)
    assert process.returncode == 130
    assert sorted(os.listdir("all")) == ["0", "multirun.yaml"]
    assert "summary.json" not in os.listdir("all/0")
