"""`python -m experiments.fidelity` judges vLLM 0.5 by rates, inter-token latencies and first tokens."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from experiments.fidelity.__main__ import main
from experiments.fidelity.vllm_v0 import read, simulate

ROW = {
    "group": "loaded_adapters",
    "max_loras": "4",
    "max_cpu_loras": "8",
    "max_lora_rank": "16",
    "max_num_seqs": "64",
    "adapter_rates": "0.1",
    "rate_by_lora": "",
    "successful": "80",
    "duration_s": "100.0",
    "gpu_blocks": "1000",
    "out_tps": "180.0",
    "itl_mean": "16.0",
    "ttft_med": "60.0",
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
    assert (row.inputs["adapters"], row.inputs["rate_rps"]) == (8, 0.1)
    found = simulate(row)
    assert found["output_tokens_per_s"] == pytest.approx(0.8 * 231, rel=0.4)
    assert 0.010 < found["itl_s"] < 0.030
    assert 0.020 < found["ttft_s"] < 0.200


def test_without_a_number_of_its_own_there_are_as_many_adapters_as_slots(tmp_path: Path) -> None:
    change = {"max_cpu_loras": "", "adapter_rates": "", "rate_by_lora": "0.2"}
    (row,) = read(a_file(tmp_path, change))
    assert (row.inputs["adapters"], row.inputs["rate_rps"]) == (4, 0.2)


def test_past_saturation_the_first_token_is_not_judged(tmp_path: Path, capsys) -> None:
    path, out, page = (
        a_file(tmp_path, {}, {"ttft_med": "20000"}),
        tmp_path / "o.json",
        tmp_path / "p.md",
    )
    assert main(["--runs", str(path), "--json", str(out), "--markdown", str(page)]) == 0
    printed = capsys.readouterr().out
    assert "below saturation, 1 runs" in printed
    assert "past it, 1 runs" in printed
    below, past = json.loads(out.read_text())["rows"]
    assert (below["past_saturation"], past["past_saturation"]) == (False, True)
    assert set(below["error"]) - set(past["error"]) == {"ttft_s"}
    error = below["simulated"]["itl_s"] / 0.016 - 1
    assert below["error"]["itl_s"] == pytest.approx(error)
    assert "vLLM 0.5 with LoRA on an H100" in page.read_text()
    assert (tmp_path / "figures" / "fidelity" / "vllm_v0.png").exists()


@pytest.mark.parametrize(
    "change, message",
    [
        ({"itl_mean": "x"}, "line 2 has itl_mean = 'x', must be a number"),
        ({"max_loras": "0"}, "line 2 has max_loras = 0, must be above 0"),
    ],
)
def test_a_mistake_is_said_with_its_line(
    tmp_path: Path, capsys, change: dict[str, str], message: str
) -> None:
    assert main(["--runs", str(a_file(tmp_path, change))]) == 2
    assert message in capsys.readouterr().err
