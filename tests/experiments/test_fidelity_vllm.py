"""`python -m experiments.fidelity` takes files in the schema of vLLM's runs with LoRA as well."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from experiments.fidelity.__main__ import main
from experiments.fidelity.compare import Comparison, in_parallel
from experiments.fidelity.vllm import predict, report
from experiments.fidelity.vllm.predict import Row, read
from experiments.fidelity.vllm.report import groups, medians, past, table
from experiments.scenarios import scenario
from simlora.core.errors import InputError
from tests.experiments import test_fidelity

CELLS = {
    "model": "llama-3.1-8b-instruct",
    "max_loras": "4",
    "max_cpu_loras": "6",
    "max_lora_rank": "16",
    "kv_tokens": "250000",
    "adapters": "6",
    "module_ranks": "8 8 16",
    "rate_values": "0.05 0.4",
    "rate_counts": "4 2",
    "duration_s": "30",
    "completed": "20",
    "output_tokens_per_s": "150",
    "itl_mean_ms": "20",
    "ttft_mean_ms": "80",
    "ttft_p50_ms": "50",
    "itl_p99_ms": "60",
}
SIMULATED = {
    "completed": 25.0,
    "output_tokens_per_s": 120.0,
    "itl_mean_ms": 25.0,
    "ttft_mean_ms": 60.0,
    "ttft_p50_ms": 50.0,
}


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SIMLORA_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


def a_file(folder: Path, *changes: dict[str, str]) -> Path:
    return test_fidelity.a_file(folder, *changes, row=CELLS)


def a_row(folder: Path, **change: str) -> Row:
    return read(a_file(folder, change))[0]


def test_a_row_is_simulated_once(tmp_path: Path, own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    row = a_row(tmp_path)
    first = report.figures(row)
    assert len(list(own_cache.iterdir())) == 1
    monkeypatch.setattr(predict, "simulate", lambda _: pytest.fail("simulated again"))
    assert report.figures(row) == first
    monkeypatch.setattr(report, "HASHED", "figures=others")
    with pytest.raises(pytest.fail.Exception, match="simulated again"):
        report.figures(row)


def test_errors_are_signed_relative_and_in_milliseconds(tmp_path: Path) -> None:
    comparison = Comparison(a_row(tmp_path), SIMULATED, fitted=False)
    assert comparison.error == pytest.approx(
        {"output_tokens_per_s": -0.2, "itl_mean_ms": 0.25, "ttft_mean_ms": -0.25, "ttft_p50_ms": 0}
    )
    assert comparison.off == pytest.approx({"itl_mean_ms": 5, "ttft_mean_ms": -20, "ttft_p50_ms": 0})


def test_a_run_is_saturated_when_first_tokens_take_two_seconds(tmp_path: Path) -> None:
    for ttft_ms, load in (("1999", "below"), ("2000", "past"), ("", "unknown")):
        assert a_row(tmp_path, ttft_mean_ms=ttft_ms).load == load


def test_a_simulated_run_that_answers_no_request_is_saturated(tmp_path: Path) -> None:
    none = {"completed": 0.0, "output_tokens_per_s": 0.0}
    found = Comparison(a_row(tmp_path), none, False)
    assert past(found) == {"measured": False, "simulated": True}
    assert found.error == {"output_tokens_per_s": -1}


def test_first_tokens_are_judged_below_saturation_only(tmp_path: Path) -> None:
    below, late = a_row(tmp_path), a_row(tmp_path, ttft_mean_ms="200000", ttft_p50_ms="100000")
    found = medians([Comparison(row, SIMULATED, False) for row in (below, late, late)])
    assert found["ttft_mean_ms"] == pytest.approx(
        {"median": 0.25, "worst": 0.25, "median_ms": 20, "worst_ms": 20}
    )
    assert found["rows"] == 3
    assert found["saturation"] == {"right": 1, "rows": 3, "share": pytest.approx(1 / 3)}


def test_groups_tell_predicted_rows_from_fitted_ones(tmp_path: Path) -> None:
    """Workloads of which no row was fitted to are a group of their own."""
    fitted, seen = a_row(tmp_path), a_row(tmp_path, max_loras="16", ttft_mean_ms="9000")
    unseen = [a_row(tmp_path, module_ranks="8 16"), a_row(tmp_path, rate_values="0.1 0.4")]
    found = groups([Comparison(row, SIMULATED, row is fitted) for row in (fitted, seen, *unseen)])
    rows = {name: [compared.row for compared in group] for name, group in found.items()}
    assert rows["fitted"] == rows["fitted max_loras=4"] == rows["fitted below saturation"] == [fitted]
    assert rows["predicted"] == rows["predicted max_lora_rank=16"] == [seen, *unseen]
    assert rows["predicted max_loras=16"] == rows["predicted past saturation"] == [seen]
    assert rows["predicted of unseen workloads"] == unseen


def test_the_rows_that_are_furthest_off_are_named_the_worst_first(tmp_path: Path) -> None:
    rows = [a_row(tmp_path, itl_mean_ms=measured) for measured in ("25", "50", "20")]
    compared = [Comparison(row, SIMULATED, False) for row in rows]
    assert f"far off: line {rows[1].line}: tokens/s -20.0 %, inter-token latency -50.0 %" in table(compared)


def test_predicted_rows_that_are_right_in_both_figures_and_wrong_in_one_are_counted(tmp_path: Path) -> None:
    row = a_row(tmp_path, output_tokens_per_s="100", itl_mean_ms="25")
    compared = [
        Comparison(row, SIMULATED | {"output_tokens_per_s": tokens_per_s, "itl_mean_ms": itl_ms}, fitted)
        for tokens_per_s, itl_ms, fitted in (
            (104.0, 23.1, False),  # right
            (106.0, 25.0, False),
            (100.0, 29.9, False),
            (79.0, 25.0, False),  # wrong
            (50.0, 50.0, True),
        )
    ]
    said = "25 % of 4 predicted rows; beyond 20 % in one of them: 1"
    assert f"within 5 % in tokens/s and 8 % in inter-token latency: {said}" in table(compared)


def test_a_row_is_a_command_line_of_simlora(tmp_path: Path) -> None:
    run = scenario(predict.overrides(a_row(tmp_path)))
    replica = run.replica
    assert (replica.max_loras, replica.max_cpu_loras, replica.max_lora_rank) == (4, 6, 16)
    assert (replica.kv_token_budget, replica.max_num_seqs) == (250_000, 2048)
    assert [adapter.rank for adapter in run.trace.adapters] == [8, 8, 16, 8, 8, 16]
    assert run.trace.duration_s < run.until_s == 30


@pytest.mark.parametrize("model", ["llama-3.1-8b-instruct", "qwen-2.5-7b-instruct"])
def test_the_calibration_of_a_row_is_the_one_that_simlora_chooses(tmp_path: Path, model: str) -> None:
    row = a_row(tmp_path, model=model)
    assert scenario(predict.overrides(row)).calibration.path == row.calibration


def test_a_pool_that_is_not_on_record_is_computed(tmp_path: Path) -> None:
    row = a_row(tmp_path, kv_tokens="")
    assert row.kv_tokens is None
    assert 100_000 < scenario(predict.overrides(row)).replica.kv_token_budget < 1_000_000


def test_rows_have_workloads_of_their_own_and_the_same_every_time(tmp_path: Path) -> None:
    rows = [a_row(tmp_path), a_row(tmp_path), a_row(tmp_path, max_loras="6")]
    assert rows[0].seed == rows[1].seed != rows[2].seed
    assert predict.simulate(rows[0]) == predict.simulate(rows[1])


def test_figures_are_those_of_the_requests_answered_in_time() -> None:
    requests = pd.DataFrame(
        {
            "status": ["finished", "finished", "finished", "unfinished"],
            "adapter": ["a", "b", "a", "b"],
            "output_tokens": [11, 1, 500, 500],
            "ttft_s": [0.5, 0.25, 9.0, float("nan")],
            "tpot_s": [0.2, float("nan"), 0.003, float("nan")],
            "arrival_s": [0.5, 1.75, 0.0, 9.5],
            "admitted_s": [0.75, 1.75, 8.0, 9.6],
            "first_token_s": [1.0, 2.0, 9.0, float("nan")],
            "finish_s": [3.0, 2.0, 10.5, float("nan")],
        }
    )
    times = {"itl_mean_ms": 200, "ttft_mean_ms": 375, "ttft_p50_ms": 375}
    found = predict.figures(requests, 10.0)
    assert found == pytest.approx({"completed": 2, "output_tokens_per_s": 1.2, **times})
    assert predict.figures(requests, 0.5) == {"completed": 0, "output_tokens_per_s": 0}


def test_a_row_that_simlora_itself_measured_is_predicted_exactly(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    figures = predict.simulate(a_row(tmp_path))
    exact = {name: repr(value) for name, value in figures.items()}
    path = a_file(tmp_path, exact, {"max_loras": "5"})
    out = tmp_path / "out.json"
    assert main(["--jobs", "1", "--runs", str(path), "--json", str(out)]) == 0
    found = json.loads(out.read_text())
    row, other = found["rows"]
    assert set(row["error"].values()) == {0}
    assert row["measured"] == figures == row["simulated"]
    assert (row["load"], row["fitted"]) == ("below", False)
    assert row["itl_p99_ms"] == "60", "a row keeps the columns that are not predicted"
    assert row["calibration"] == "h100_64g-llama_3_1_8b-tp1-vllm"
    assert other["saturated"] == {"measured": False, "simulated": False}
    assert found["saturation"] == {"right": 2, "rows": 2, "share": 1}
    assert "saturation called right in 2 of 2 rows" in capsys.readouterr().out


def test_runs_that_are_yet_to_be_measured_are_predicted_too(tmp_path: Path) -> None:
    out, blank = tmp_path / "out.json", dict.fromkeys(SIMULATED, "")
    assert main(["--jobs", "1", "--runs", str(a_file(tmp_path, blank)), "--json", str(out)]) == 0
    (row,) = json.loads(out.read_text())["rows"]
    assert row["error"] == {}
    assert row["simulated"]["output_tokens_per_s"] > 0


def test_rows_without_a_calibration_are_counted_and_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(report.calibrations, "names", lambda: ["h100_64g-qwen_2_5_7b-tp1-vllm"])
    assert main(["--jobs", "1", "--runs", str(a_file(tmp_path, {}, {"max_loras": "5"}))]) == 0
    expected = "not simulated: 2 rows, there is no calibration h100_64g-llama_3_1_8b-tp1-vllm\n"
    assert capsys.readouterr().out == expected


def test_fitted_rows_stand_in_the_calibration(tmp_path: Path, monkeypatch) -> None:
    row, other = a_row(tmp_path), a_row(tmp_path, adapters="7", rate_counts="4 3")
    own = report.calibrations.load(row.calibration)
    named = replace(own, provenance={**own.provenance, "fitted_rows": [row.key]})
    monkeypatch.setattr(report.calibrations, "load", lambda name: named)
    assert (report.fitted(row), report.fitted(other)) == (True, False)
    assert row.key == (
        "llama-3.1-8b-instruct max_loras=4 max_cpu_loras=6 max_lora_rank=16 adapters=6 module_ranks=8,8,16 "
        "rate_values=0.05,0.4 rate_counts=4,2 duration_s=30"
    )


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"max_loras": "many"}, "line 2 has max_loras = 'many', must be a number"),
        ({"adapters": "6.5"}, "line 2 has adapters = 6.5, must be a whole number"),
        ({"kv_tokens": "inf"}, "line 2 has kv_tokens = inf, must be finite"),
        ({"ttft_mean_ms": "nan"}, "line 2 has ttft_mean_ms = nan, must be finite"),
        ({"model": "gpt-5"}, "line 2 has model 'gpt-5'"),
        ({"module_ranks": ""}, "line 2 has no module_ranks, must be numbers with blanks between them"),
        ({"module_ranks": "8 wide"}, "line 2 has module_ranks = 'wide', must be a number"),
        ({"rate_counts": "6"}, "line 2 has 1 rate_counts, must be one for each of its 2 rate_values"),
        ({"rate_counts": "4 1"}, "line 2: workload.counts are 5 adapters together, must be the 6"),
        ({"duration_s": "0"}, "line 2: until_s is 0"),
        ({"max_loras": "0"}, "line 2: replica.max_loras is 0"),
    ],
)
def test_a_bad_row_is_one_sentence_that_names_its_place(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], change: dict[str, str], said: str
) -> None:
    assert main(["--jobs", "1", "--runs", str(a_file(tmp_path, change))]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1


def test_a_missing_column_is_named(tmp_path: Path) -> None:
    path = tmp_path / "runs.csv"
    path.write_text("model,max_loras\nqwen-2.5-7b-instruct,4\n")
    with pytest.raises(InputError, match="has no column max_cpu_loras"):
        read(path)


def test_long_work_says_how_far_it_is(capsys, monkeypatch) -> None:
    monkeypatch.setattr("experiments.fidelity.compare.EVERY_S", -1.0)
    assert in_parallel(dict, [{"a": 1.0}, {"a": 2.0}], 1) == [{"a": 1.0}, {"a": 2.0}]
    assert capsys.readouterr().err == "1 of 2 rows\n2 of 2 rows\n"
