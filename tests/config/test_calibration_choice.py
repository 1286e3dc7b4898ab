"""A calibration that was composed says so wherever its results are read."""

import json

import pytest

from simlora.api import simulate
from simlora.cli.capacity import main as capacity
from simlora.cli.sweep import main as sweep
from simlora.report import provenance
from simlora.sweeps.gathering import gather

SHORT = (
    "system=vllm",
    "gpu=l40s",
    "model=mistral_7b",
    "replica.tp=2",
    "workload.duration_s=20",
    "workload.adapters=4",
)
LORA_SERVER = (
    "cluster.lora_server_gpus=1",
    "loader=cached",
    "eviction=lru",
    "replica.adapter_memory=unified",
    "workload.duration_s=1",
)


def test_a_run_says_what_error_to_expect_in_its_notices_its_summary_and_its_report():
    result = simulate([*SHORT, "replica.max_lora_rank=32", "workload.ranks=[16]"])
    (expected,) = result.summary["calibration"]["provenance"]["warnings"]
    assert "Expect a decode step to be off by 14 %" in expected
    assert expected in result.notices
    assert "Expect a decode step to be off by 14 %" in str(provenance.calibration(result.summary))


def test_a_limit_beyond_what_a_part_was_measured_for_is_said():
    result = simulate([*SHORT, "replica.max_lora_rank=64", "replica.max_num_seqs=1024"])
    warnings = " ".join(result.summary["calibration"]["provenance"]["warnings"])
    assert "replica.max_lora_rank is 64" in warnings
    assert "measured up to rank 32" in warnings
    assert "up to a batch of 512" in warnings


@pytest.mark.parametrize(
    ("system", "modules", "says"),
    [("vllm", "[q,v,gate]", True), ("vllm", "[q,v]", False), ("slora", "[q,v,gate]", False)],
)
def test_kernels_that_were_measured_without_experts_say_so_where_experts_are_adapted(system, modules, says):
    mixture = ("gpu=h100_80g", "model=qwen3_30b_a3b", "workload.duration_s=1")
    result = simulate([*SHORT, *mixture, f"system={system}", f"replica.target_modules={modules}"])
    assert any("adapters of experts take memory" in notice for notice in result.notices) is says


@pytest.mark.parametrize("replicas_have", ["", "l40s-mistral_7b-tp2-vllm"])
def test_a_lora_server_says_whose_kernels_it_takes_where_the_replicas_have_a_calibration_by_name(
    replicas_have,
):
    chosen = [f"calibration={replicas_have}"] if replicas_have else []
    result = simulate([*SHORT, *LORA_SERVER, *chosen])
    said = [notice for notice in result.notices if "takes l40s-mistral_7b-tp1-vllm" in notice]
    assert len(said) == len(chosen)


def test_a_capacity_says_it_too(tmp_path, capsys):
    out = tmp_path / "capacity"
    command = [*SHORT, "--seeds=1", "--precision=0.5", "--longest=1", "--jobs=1", f"--out={out}"]
    assert capacity(command) == 0
    assert "Expect a decode step to be off by 14 %" in capsys.readouterr().err
    assert json.loads((out / "capacity.json").read_text())["warnings"]


def test_a_sweep_says_it_once_for_all_runs_that_it_is_of(tmp_path, capsys):
    command = [
        *SHORT,
        "gpu=l40s,rtx_pro_6000",
        "replica.max_lora_rank=32",
        "workload.ranks=[16]",
        "--seeds=2",
        "--jobs=1",
    ]
    command.remove("gpu=l40s")
    assert sweep([*command, f"--out={tmp_path}"]) == 0
    said = capsys.readouterr().err
    notices = " ".join(gather([tmp_path]).notices)
    for name in ("l40s", "rtx_pro_6000"):
        assert f"Of 2 of 4 runs, calibration {name}-mistral_7b-tp2-vllm is derived" in notices, (
            "of a comparison"
        )
        assert said.count(f"of 2 of 4 runs, calibration {name}-mistral_7b-tp2-vllm is derived") == 1
