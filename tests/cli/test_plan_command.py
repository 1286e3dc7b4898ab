"""simlora-plan, as a user types it."""

import json

from simlora.cli.plan import main
from simlora.planning import explaining

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


def test_it_says_what_it_will_cost_then_the_plan_and_where_the_rest_is(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(explaining, "STEPS", 2)
    (tmp_path / "conf/workload").mkdir(parents=True)
    (tmp_path / "conf/workload/short.yaml").write_text("defaults: [per_adapter, _self_]\nduration_s: 60\n")
    asked = [*SMALL, "--config-dir=conf", "workload=short", "--price", "l40s=1.9", "--longest=1"]
    assert main([*asked, "--tune", "replica.max_loras=4,8"]) == 0
    shown = capsys.readouterr()
    assert "1 kinds of machine, 0 left out; about" in shown.err
    assert "minutes on 1 cores, less what is kept" in shown.err
    assert "vllm on 1 l40s: llama_3_1_8b on l40s, steps of vllm, SLO TTFT < 2 s, " in shown.out
    assert "Plan 1: 1 × vllm on 1 l40s, USD 1.90 an hour" in shown.out
    assert "  run: vllm serve meta-llama/Llama-3.1-8B-Instruct --enable-lora" in shown.out
    assert "Results: outputs/plan/plan.png, plan.json, runs.parquet, kubernetes_N.yaml of plan N" in shown.out
    (one,) = json.loads((tmp_path / "outputs/plan/plan.json").read_text())["plans"]
    assert one["settings"]["replica.max_loras"] in (4, 8)
