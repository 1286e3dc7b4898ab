"""The made-up gateway's log is one that `simlora-trace import` reads."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from experiments.planning import gateway_log
from simlora.cli import trace


def test_a_gateways_log_becomes_a_trace(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log, out = tmp_path / "access.jsonl.gz", tmp_path / "trace.csv"
    assert gateway_log.main([str(log), "--requests", "2000"]) == 0
    arguments = ["import", str(log), str(out), "--rank", "16", "--base-model", gateway_log.BASE_MODEL]
    assert trace.main(arguments) == 0
    said = capsys.readouterr()
    assert "usage.prompt_tokens" in said.out
    assert "status 429" in said.err
    found = pd.read_csv(out)
    assert 0 < 2000 - len(found) < 60
    assert 0.02 < found["adapter"].isna().mean() < 0.04


def test_the_same_seed_writes_the_same_log(tmp_path: Path) -> None:
    first, second = tmp_path / "a.jsonl.gz", tmp_path / "b.jsonl.gz"
    for path in (first, second):
        assert gateway_log.main([str(path), "--requests", "50", "--seed", "3"]) == 0
    assert first.read_bytes() == second.read_bytes()
