"""simlora-sweep, as a user types it."""

from pathlib import Path

import pandas as pd

from simlora.cli.report import main as report_main
from simlora.cli.sweep import main
from tests.traces import workload

SMALL = (
    "system=slora,slora_lcfs",
    "workload.rate_rps=1,2",
    "workload.duration_s=10",
    "replica.kv_token_budget=14500",
    "--seeds=2",
    "--jobs=1",
)


def test_it_shows_means_and_says_where_the_table_is(capsys):
    assert main([*SMALL, "--figure", "ttft_s.p95"]) == 0
    out = capsys.readouterr().out
    sides, _, *lines = out.splitlines()
    budget = "kv_token_budget=14500"
    assert sides.startswith(f"slora + {budget}; slora_lcfs + {budget}: llama_7b on a10g, steps of slora")
    assert lines[0] == "ttft_s.p95: median over seeds, 95 % interval"
    assert lines[1].split() == [
        "system",
        "workload.rate_rps",
        "estimate",
        "low",
        "high",
        "runs",
        "failed",
        "load",
    ]
    shown = [("slora", "1"), ("slora", "2"), ("slora_lcfs", "1"), ("slora_lcfs", "2")]
    assert [(line.split()[0], line.split()[3]) for line in lines[2:6]] == shown
    assert "Results: outputs/sweep/sweep.parquet, 8 runs" in out
    assert len(pd.read_parquet("outputs/sweep/sweep.parquet")) == 8


def test_differences_are_from_a_value_that_was_varied(capsys):
    assert main([*SMALL, "--figure=ttft_s.p95", "--against", "system=slora", "--out=here"]) == 0
    told = "ttft_s.p95: difference from system=slora, seed by seed, 95 % interval"
    assert capsys.readouterr().out.splitlines()[2].startswith(told)
    for mistake, said in {
        "--against=gpu=a10g": "'gpu=a10g' is no value of what is varied; choose one of system, workload.rate_rps",
        "--against=system=slorra": "--against: system has no 'slorra'; did you mean slora",
        "--figure=status": "status is no number; ",
    }.items():
        assert main([*SMALL, mistake]) == 2
        assert said in capsys.readouterr().err


def test_seeds_that_change_nothing_are_noticed(capsys):
    read = workload(Path(), *(f"{second},a,8,100,10" for second in range(20)))
    for more, said in {
        "speedup=1,2": "notice: 4 runs did the very same as another seed",
        "workload.resample_block_s=5": "notice: each seed draws the trace anew, of its own blocks of 5 s",
    }.items():
        assert main([*read, more, "--seeds=3", "--jobs=1"]) == 0
        assert said in capsys.readouterr().err


def test_runs_without_figures_are_noticed(capsys):
    assert main([*SMALL[2:3], "replica.kv_token_budget=10,14500", "--jobs=1", "--figure=ttft_s.mean"]) == 0
    captured = capsys.readouterr()
    assert "notice: 1 of 2 runs have no figures; the first: every one of the" in captured.err
    assert captured.out.splitlines()[4].split() == ["10", "0", "1"]  # no figures, no runs, one that failed


def test_systems_with_a_gpu_of_their_own_are_compared_if_asked(capsys):
    grid = ["system=slora,vllm", "workload.duration_s=10", "--jobs=1"]
    assert main(grid) == 2
    assert capsys.readouterr().err == (
        "simlora: error: the sides differ in gpu: a10g (slora), h100_64g (vllm); and in model: llama_7b (slora), "
        "llama_3_1_8b (vllm); set gpu= and model= alike for all, or allow it with --across gpu,model\n"
    )
    assert not Path("outputs").exists()
    assert main([*grid, "--across", "gpu,model", "--out=both"]) == 0
    first, second, *_ = capsys.readouterr().out.splitlines()
    assert first.startswith("slora: llama_7b on a10g, steps of slora, ")
    assert second.startswith("vllm: llama_3_1_8b on h100_64g, steps of vllm, ")
    assert report_main(["both"]) == 2  # the page is asked for anew
    assert "or allow it with --across gpu,model" in capsys.readouterr().err
    assert report_main(["both", "--across=gpu", "--across=model"]) == 0
    assert capsys.readouterr().out.startswith("slora: llama_7b on a10g, steps of slora, ")
