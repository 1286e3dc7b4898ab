"""`python -m experiments.fidelity` judges a base engine by every request's time stamps."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from experiments.fidelity.__main__ import main
from experiments.fidelity.base_engine import read

ENGINE = {"tensor_parallel_size": 1, "max_num_seqs": 4, "max_num_batched_tokens": 2048}


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SIMLORA_CACHE_DIR", str(tmp_path / "cache"))


def a_run(folder: Path, name: str = "RTXPRO6000_Llama-3.1-8B", **change: object) -> Path:
    """Three requests, the last first, of which each token took 12 ms."""
    path = folder / f"{name}.requests.jsonl"
    (folder / f"{name}.meta.json").write_text(json.dumps({"engine_kwargs": ENGINE}))
    rows = []
    for number in (2, 1, 0):
        queued_s = 1000.0 + 5 * number
        row = {
            "input_toks": 100,
            "output_toks": 21,
            "queued_ts": queued_s,
            "first_token_ts": queued_s + 0.02,
            "last_token_ts": queued_s + 0.26,
        }
        rows.append(json.dumps(row | change))
    path.write_text("\n".join(rows) + "\n")
    return path


def test_a_request_alone_takes_a_pass_and_then_a_step_a_token(tmp_path):
    log = read(a_run(tmp_path))
    assert log.measured()["tpot_s"] == pytest.approx([0.012] * 3)
    simulated = log.simulated()
    assert simulated["ttft_s"] == pytest.approx([simulated["ttft_s"][0]] * 3)
    assert simulated["latency_s"][0] == pytest.approx(simulated["ttft_s"][0] + 20 * simulated["tpot_s"][0])


def test_both_are_drawn_and_written(tmp_path: Path) -> None:
    out, page = tmp_path / "out.json", tmp_path / "page.md"
    assert main(["--runs", str(a_run(tmp_path)), "--json", str(out), "--markdown", str(page)]) == 0
    tree = json.loads(out.read_text())
    (row,) = tree["rows"]
    error = row["simulated"]["latency_s"][0] / row["measured"]["latency_s"][0] - 1
    assert tree["means"]["RTXPRO6000_Llama-3.1-8B"]["latency_s"] == pytest.approx(error)
    assert (tmp_path / "figures" / "fidelity" / "base_engine.png").exists()


def test_names_are_theirs(tmp_path):
    log = read(a_run(tmp_path, "H100_Qwen3-30B-A3B"))
    assert (log.gpu, log.model, log.missing) == ("h100_80g", "qwen3_30b_a3b", "")
    assert read(a_run(tmp_path, "H100_Mistral-7B-v0.1")).model == "mistral_7b"


def test_what_simlora_does_not_have_is_said_and_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = a_run(tmp_path, "TPUv6_Gemma-9B")
    assert main(["--runs", str(runs), "--markdown", str(tmp_path / "page.md")]) == 0
    assert "not simulated: 1 runs, there is no gpu TPUv6" in capsys.readouterr().out


def test_a_mistake_is_said_with_its_line(tmp_path, capsys):
    assert main(["--runs", str(a_run(tmp_path, input_toks="many"))]) == 2
    assert "line 1 has input_toks 'many', must be a number" in capsys.readouterr().err
    path = a_run(tmp_path)
    (tmp_path / "RTXPRO6000_Llama-3.1-8B.meta.json").unlink()
    assert main(["--runs", str(path)]) == 2
    assert "meta.json cannot be read" in capsys.readouterr().err
