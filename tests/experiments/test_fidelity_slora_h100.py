"""`python -m experiments.fidelity` judges S-LoRA on an H100 by rates, inter-token latencies and first tokens."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from experiments.fidelity.__main__ import main
from experiments.fidelity.slora_h100 import read, simulate

ROW = {
    "adapters": "4",
    "rate_per_adapter": "0.1",
    "duration": "100.0",
    "request_throughput": "0.4",
    "mean_itl_ms": "16.0",
    "median_ttft_ms": "60.0",
    "avg_unique": "3.0",
}


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SIMLORA_CACHE_DIR", str(tmp_path / "cache"))


def a_file(folder: Path, *changes: dict[str, str]) -> Path:
    path = folder / "runs.csv"
    rows = [ROW | change for change in changes]
    path.write_text("\n".join([",".join(ROW), *(",".join(row.values()) for row in rows)]) + "\n")
    return path


def test_requests_that_end_within_the_run_count(tmp_path: Path) -> None:
    (row,) = read(a_file(tmp_path, {}))
    found = simulate(row)
    assert found["throughput_rps"] == pytest.approx(0.4, rel=0.4)
    assert 0.010 < found["itl_s"] < 0.030
    assert 0.010 < found["ttft_s"] < 0.100


def test_past_saturation_the_first_token_is_not_judged(tmp_path: Path, capsys) -> None:
    path, out, page = (
        a_file(tmp_path, {}, {"median_ttft_ms": "20000"}),
        tmp_path / "o.json",
        tmp_path / "p.md",
    )
    assert main(["--runs", str(path), "--json", str(out), "--markdown", str(page)]) == 0
    printed = capsys.readouterr().out
    assert "median, below saturation, 1 runs" in printed
    assert "median, past it, 1 runs" in printed
    below, past = json.loads(out.read_text())["rows"]
    assert (below["past_saturation"], past["past_saturation"]) == (False, True)
    assert set(below["error"]) - set(past["error"]) == {"ttft_s"}
    error = below["simulated"]["itl_s"] / 0.016 - 1
    assert below["error"]["itl_s"] == pytest.approx(error)
    assert "S-LoRA on an H100" in page.read_text()
    assert (tmp_path / "figures" / "fidelity" / "slora_h100.png").exists()


@pytest.mark.parametrize(
    "change, message",
    [
        ({"mean_itl_ms": "x"}, "line 2 has mean_itl_ms = 'x', must be a number"),
        ({"adapters": "0"}, "line 2 has adapters = 0, must be above 0"),
    ],
)
def test_a_mistake_is_said_with_its_line(
    tmp_path: Path, capsys, change: dict[str, str], message: str
) -> None:
    assert main(["--runs", str(a_file(tmp_path, change))]) == 2
    assert message in capsys.readouterr().err
