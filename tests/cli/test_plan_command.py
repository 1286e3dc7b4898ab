"""simlora-plan, as a user types it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from simlora.cli.plan import main

SMALL = (
    "model=llama_3_1_8b",
    "workload=per_adapter",
    "workload.adapters=8",
    "workload.rates_rps=[0.2]",
    "workload.duration_s=60",
    "slo.ttft_s=2",
    "--gpus=l40s",
    "--tp=1",
    "--seeds=1",
    "--jobs=1",
)


@pytest.fixture(autouse=True)
def at_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_it_says_what_it_will_cost_then_the_plan_and_where_the_rest_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*SMALL, "--price", "l40s=1.9", "--tune", "replica.max_loras=4,8"]) == 0
    shown = capsys.readouterr()
    assert "1 kinds of machine, 0 left out; about" in shown.err
    assert "minutes on 1 cores, less what is kept" in shown.err
    assert (
        "vllm on 1 l40s: llama_3_1_8b on l40s, steps of vllm, SLO TTFT < 2 s, "
        "calibration l40s-llama_3_1_8b-tp1-vllm (derived)\nSLO: 95 %"
    ) in shown.out
    assert "Plan 1: 1 × vllm on 1 l40s, USD 1.90 an hour" in shown.out
    assert "  run: vllm serve meta-llama/Llama-3.1-8B-Instruct --enable-lora" in shown.out
    assert "Results: outputs/plan/plan.png, plan.json, runs.parquet, kubernetes_N.yaml of plan N" in shown.out
    (one,) = json.loads((tmp_path / "outputs/plan/plan.json").read_text())["plans"]
    assert one["settings"]["replica.max_loras"] in (4, 8)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--gpus=a800_80g",), "no price of gpu=a800_80g is known; give one with --price a800_80g=USD"),
        (("--price", "l40s"), "--price 'l40s' must be NAME=VALUE, such as l40s=1.9"),
        (("--price", "l40s=cheap"), "--price l40s is 'cheap', must be a number"),
        (("--price=l40s=1", "--price=l40s=2"), "--price is given twice for l40s; give each once"),
        (("--price=l40s=1", "--tp=two"), "--tp is 'two', must be a number"),
        (("--price=l40s=1", "--tune=replica.slots=2"), "--tune replica.slots: vllm has no such flag"),
    ],
)
def test_bad_input_ends_with_one_sentence_and_status_2(
    arguments: tuple[str, ...], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*SMALL, *arguments]) == 2
    err = capsys.readouterr().err
    assert said in err
    assert len(err.strip().splitlines()) == 1
    assert not (tmp_path / "outputs/plan").exists()
