"""`python -m experiments.fidelity` judges S-LoRA on an H100 and vLLM 0.5 by rates, latencies and first tokens."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from experiments.fidelity.__main__ import main
from experiments.fidelity.cells import runs
from experiments.fidelity.sheeted import Row, simulate
from tests.experiments.test_fidelity import a_file

SLORA = {
    "adapters": "4",
    "rate_per_adapter": "0.1",
    "duration": "100.0",
    "request_throughput": "0.4",
    "mean_itl_ms": "16.0",
    "median_ttft_ms": "60.0",
    "avg_unique": "3.0",
}
VLLM = {
    "max_loras": "4",
    "max_cpu_loras": "8",
    "max_lora_rank": "16",
    "max_num_seqs": "64",
    "adapter_rates": "0.1",
    "rate_by_lora": "",
    "duration_s": "100.0",
    "gpu_blocks": "1000",
    "out_tps": "180.0",
    "itl_mean": "16.0",
    "ttft_med": "60.0",
}
FILES = [
    pytest.param(SLORA, "median_ttft_ms", id="slora"),
    pytest.param(VLLM, "ttft_med", id="vllm"),
]


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SIMLORA_CACHE_DIR", str(tmp_path / "cache"))


@pytest.mark.parametrize(
    "name, line, requests_per_s, tokens",
    [("slora_h100", SLORA, 0.4, 230), ("vllm_v0", VLLM, 0.8, 231)],
    ids=["slora", "vllm"],
)
def test_requests_that_end_within_the_run_count(
    tmp_path: Path, name: str, line: Mapping[str, str], requests_per_s: float, tokens: int
) -> None:
    (row,) = runs(Row, name, a_file(tmp_path, {}, row=line))
    found = simulate(row.overrides)
    assert found["output_tokens_per_s"] == pytest.approx(requests_per_s * tokens, rel=0.4)
    assert 0.010 < found["itl_s"] < 0.030
    assert 0.010 < found["ttft_s"] < 0.200


def test_without_a_number_of_their_own_there_are_as_many_adapters_as_slots(tmp_path: Path) -> None:
    change = {"max_cpu_loras": "", "adapter_rates": "", "rate_by_lora": "0.2"}
    (row,) = runs(Row, "vllm_v0", a_file(tmp_path, change, row=VLLM))
    assert (row.inputs["adapters"], row.inputs["rate_rps"]) == (4, 0.2)


@pytest.mark.parametrize("line, first_token", FILES)
def test_past_saturation_the_first_token_is_not_judged(
    tmp_path: Path, line: Mapping[str, str], first_token: str
) -> None:
    out = tmp_path / "o.json"
    runs = a_file(tmp_path, {}, {first_token: "20000"}, row=line)
    assert main(["--runs", str(runs), "--json", str(out), "--jobs", "1"]) == 0
    below, past = json.loads(out.read_text())["rows"]
    assert (below["past_saturation"], past["past_saturation"]) == (False, True)
    assert set(below["error"]) - set(past["error"]) == {"ttft_s"}
    assert below["error"]["itl_s"] == pytest.approx(below["simulated"]["itl_s"] / 0.016 - 1)


@pytest.mark.parametrize("line, first_token", FILES)
def test_a_mistake_is_said_with_its_line(
    tmp_path: Path, capsys, line: Mapping[str, str], first_token: str
) -> None:
    assert main(["--runs", str(a_file(tmp_path, {first_token: "x"}, row=line))]) == 2
    assert f"line 2 has {first_token} = 'x', must be a number" in capsys.readouterr().err
    assert main(["--runs", str(a_file(tmp_path, {first_token: "0"}, row=line))]) == 2
    assert "line 2 has ttft_s = 0, must be above 0" in capsys.readouterr().err
