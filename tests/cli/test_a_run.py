"""One command, one folder with everything in it."""

import os
from pathlib import Path

import pandas as pd
import yaml

from tests.cli.command import SHORT
from tests.traces import workload

TIMES = "ttft_s tpot_s tbt_s latency_s latency_per_output_token_s queue_s queue_per_output_token_s"
COLUMNS = """request_id adapter rank prompt_tokens output_tokens cached_tokens replica arrival_s admitted_s
first_token_s finish_s status reason ttft_s tpot_s latency_s queue_s cold_start_s kv_cold_start_s blocked_s
preemptions migrations"""
FILES = ["config.yaml", "requests.parquet", "summary.json", "timeline.parquet"]


def test_a_run_leaves_all_its_files_and_prints_a_table_and_the_place_of_the_report(simlora):
    ended = simlora("workload.duration_s=20", "cluster.replicas=3", "seed=7", "hydra.run.dir=out")
    assert (ended.status, ended.err) == (0, "")
    assert simlora.files() == sorted(["out", "out/report.html", *(f"out/{name}" for name in FILES)])
    assert "SLO attainment" in ended.out
    assert ended.out.endswith("Report: out/report.html\n\n")
    requests = pd.read_parquet("out/requests.parquet")
    assert list(requests.columns) == COLUMNS.split()
    assert requests["request_id"].tolist() == list(range(40))
    assert set(requests["status"]) == {"finished"}
    config = yaml.safe_load(Path("out/config.yaml").read_text())
    assert config["seed"] == 7
    assert config["scheduler"] == {"_target_": "simlora.policies.scheduling.fcfs.Fcfs"}


def test_the_summary_has_what_is_promised(simlora):
    simlora(*SHORT, "hydra.run.dir=out", "cluster.replicas=3")
    summary = simlora.summary("out")
    assert {"submitted", "finished", "aborted", "rejected"} <= set(summary["requests"])
    for name in (*TIMES.split(), "cold_start_s", "kv_cold_start_s"):
        assert set(summary[name]) == {"mean", "p50", "p90", "p95", "p99"}
    assert set(summary["slo"]) >= {"targets", "attainment", "goodput_rps"}
    assert set(summary["adapters"]) >= {"loads", "load_bytes", "hit_rate"}
    assert set(summary["kv"]) >= {"hit_rate", "hbm_share", "invalid_share", "preemptions"}
    assert set(summary["simulation"]) >= {"wall_s", "events", "iterations", "requests_per_wall_s"}
    assert {"makespan_s", "throughput_rps", "throughput_tps", "replicas", "seed", "versions"} <= set(summary)
    assert summary["calibration"]["coefficients"]["decode.intercept_s"] == 0.025
    assert (summary["migration"], summary["simulation"]["migration_wall_s"]) == (None, None)
    assert summary["complete"] is True
    typed = f"{' '.join(SHORT)} cluster.replicas=3"  # without the folder
    assert summary["command"] == f"simlora calibration=cal.yaml {typed}"
    assert [replica["replica"] for replica in summary["replicas"]] == [0, 1, 2]
    assert sum(replica["finished"] for replica in summary["replicas"]) == summary["requests"]["finished"]


def test_a_run_that_merges_leaves_what_it_decided_until_another_takes_its_place(simlora):
    run = ("calibration=null", "system=dlora", "workload=functions", "workload.stride=32")
    ended = simlora(*run, "workload.duration_s=30", "report=false", "hydra.run.dir=out")
    assert ended.status == 0, ended.err
    assert simlora.files() == sorted(["out", *(f"out/{name}" for name in (*FILES, "decisions.parquet"))])
    assert "Merged  " in ended.out
    Path("out/requests.incomplete.parquet").write_text("of an interrupted run")
    Path("out/notes.txt").write_text("the user's own")
    assert simlora(*SHORT, "timeline=false", "hydra.run.dir=out", "seed=3").status == 0
    assert sorted(os.listdir("out")) == ["config.yaml", "notes.txt", "requests.parquet", "summary.json"]
    assert simlora.summary("out")["seed"] == 3


def test_a_sweep_is_a_folder_a_simulation(simlora):
    ended = simlora("-m", "seed=1,2", "hydra.sweep.dir=all", *SHORT)  # options may stand anywhere
    assert ended.status == 0, ended.err
    assert [simlora.summary(f"all/{number}")["seed"] for number in (0, 1)] == [1, 2]
    assert ended.out.count("SLO attainment") == 2


def test_so_it_is_where_a_key_or_a_file_says_that_it_is_one(simlora):
    Path("mine/system").mkdir(parents=True)
    Path("mine/system/many.yaml").write_text("# @package _global_\nhydra: {mode: MULTIRUN}\n")
    for typed in (["hydra.mode=MULTIRUN"], ["--config-dir=mine", "system=many"]):
        assert simlora(*typed, "seed=-1,1").sentence == (
            "simlora: error: seed is -1, must be a whole number, at least 0"
        )


def test_notices_are_single_lines_on_stderr(simlora):
    read = workload(Path(), "1,a,8,10,5", "0,a,8,99999,5")
    ended = simlora("report=false", *read, "hydra.run.dir=out")
    assert ended.status == 0
    sorted_rows, rejected = ended.err.splitlines()
    assert sorted_rows.startswith("simlora: notice: trace.csv, row 3: arrival_s goes back")
    assert rejected.startswith(
        "simlora: notice: 1 of 2 requests were rejected (trace.csv), the first, with a"
    )
    requests = pd.read_parquet("out/requests.parquet")
    assert requests["status"].tolist() == ["rejected", "finished"]
    assert requests["reason"][0].startswith("the prompt is longer than replica.max_num_batched_tokens")


def test_a_calibration_for_another_gpu_is_used_with_a_notice_and_results_go_below_outputs(simlora):
    ended = simlora(*SHORT, "gpu=a100_80g")
    assert ended.status == 0
    assert [path for path in simlora.files() if path.startswith("outputs/") and path.endswith("summary.json")]
    assert ended.sentence.startswith("simlora: notice: calibration cal.yaml is for gpu a10g instead of a")


def test_the_hash_seed_changes_nothing(simlora):
    run = ("workload=synthetic", "cluster.replicas=3", "router=random", "eviction=lru", "seed=5")
    for folder, hash_seed in (("one", "1"), ("two", "2")):
        environment = dict(os.environ) | {"PYTHONHASHSEED": hash_seed}
        ended = simlora.apart(*run, *SHORT, f"hydra.run.dir={folder}", **environment)
        assert ended.status == 0, ended.err
    for name in ("requests.parquet", "timeline.parquet", "config.yaml"):
        assert Path("one", name).read_bytes() == Path("two", name).read_bytes(), name
