"""`python -m experiments.fidelity` takes any file in the schema, simulates what it can, and says how far off it is."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from experiments.fidelity import rows as fidelity_rows
from experiments.fidelity.__main__ import main
from experiments.fidelity.campaigns import calibration_of, slowed
from experiments.fidelity.compare import Comparison, medians
from experiments.fidelity.fit import Plan, fit, without
from experiments.fidelity.orders import pairs
from experiments.fidelity.predict import simulate, trace
from experiments.fidelity.rows import MEASURED, Row, read
from experiments.fidelity.servers import server
from simlora.core.errors import InputError
from simlora.latency import calibration as calibrations

CELLS = {
    "system": "slora",
    "gpu": "a10g",
    "setting": "S2",
    "kv_token_budget": "14500",
    "num_adapters": "20",
    "alpha": "1",
    "req_rate": "2",
    "cv": "1",
    "duration_s": "20",
    "prompt_lo": "8",
    "prompt_hi": "512",
    "output_lo": "8",
    "output_hi": "512",
    "throughput_rps": "1.5",
    "mean_latency_s": "12",
    "mean_first_token_s": "1.25",
    "attainment_6s": "1",
    "campaign": "ours",
}


def a_file(folder: Path, *changes: dict[str, str]) -> Path:
    path = folder / "runs.csv"
    with path.open("w", newline="") as file:
        table = csv.DictWriter(file, list(CELLS))
        table.writeheader()
        table.writerows([{**CELLS, **change} for change in changes])
    return path


def a_row(folder: Path, **change: str) -> Row:
    return read(a_file(folder, change))[0]


def test_errors_are_signed_and_relative_but_for_attainment(tmp_path: Path) -> None:
    row = a_row(tmp_path)
    simulated = {
        "throughput_rps": 1.2,
        "mean_latency_s": 15.0,
        "mean_first_token_s": 1.0,
        "attainment_6s": 0.75,
    }
    comparison = Comparison(row, simulated, fitted=False)
    assert comparison.error == pytest.approx(
        {"throughput": -0.2, "mean_latency": 0.25, "mean_first_token": -0.2, "attainment": -0.25}
    )
    assert comparison.error_s == pytest.approx({"mean_latency": 3.0, "mean_first_token": -0.25})


@pytest.mark.parametrize(("attainment", "load"), [("1", "below"), ("0.7", "near"), ("0.2", "past")])
def test_a_row_says_whether_it_was_saturated(tmp_path: Path, attainment: str, load: str) -> None:
    assert Comparison(a_row(tmp_path, attainment_6s=attainment), {}, False).load == load


def test_medians_are_of_absolute_errors(tmp_path: Path) -> None:
    row = a_row(tmp_path)
    measured = row.measured
    off = [
        Comparison(row, {name: measured[name] * (1 + by) for name in MEASURED}, False)
        for by in (-0.3, 0.1, 0.2)
    ]
    found = medians(off)
    assert found["throughput"]["median"] == pytest.approx(0.2)
    assert found["throughput"]["worst"] == pytest.approx(0.3)
    assert found["mean_latency"]["median_s"] == pytest.approx(2.4)


def test_the_workload_is_the_published_one_and_its_prompts_have_one_token_more(tmp_path: Path) -> None:
    requests = trace(a_row(tmp_path))
    assert len(requests) == 40
    assert requests.prompt_tokens.min() >= 9
    assert requests.prompt_tokens.max() <= 512
    assert [spec.rank for spec in requests.adapters[:5]] == [64, 32, 16, 8, 64]


def test_a_row_that_simlora_itself_measured_is_predicted_exactly(tmp_path: Path, capsys) -> None:
    figures = simulate(a_row(tmp_path))
    path = a_file(tmp_path, {name: repr(value) for name, value in figures.items()})
    out = tmp_path / "out.json"
    assert main(["--jobs", "1", "--runs", str(path), "--json", str(out)]) == 0
    found = json.loads(out.read_text())
    (row,) = found["rows"]
    assert row["error"] == {"throughput": 0, "mean_latency": 0, "mean_first_token": 0, "attainment": 0}
    assert row["system"] == "slora"
    assert row["measured"]["throughput_rps"] == figures["throughput_rps"]
    assert row["fitted"] is False
    assert found["medians"]["predicted"]["throughput"]["median"] == 0
    assert "slora              a10g" in capsys.readouterr().out


def test_systems_that_do_not_exist_yet_are_counted_and_named(tmp_path: Path, capsys) -> None:
    path = a_file(tmp_path, {}, {"system": "time_machine"}, {"system": "time_machine"}, {"gpu": "h100_80g"})
    assert main(["--jobs", "1", "--runs", str(path)]) == 0
    printed = capsys.readouterr().out
    assert "not simulated: 2 rows, system time_machine does not exist yet" in printed
    assert "not simulated: 1 rows, there is no calibration h100_80g-llama_7b-tp1" in printed


def test_clustering_from_as_many_adapters_as_there_are_is_plain_slora(tmp_path: Path) -> None:
    assert a_row(tmp_path, system="slora_cluster_32", num_adapters="32").system == "slora"
    fewer = a_row(tmp_path, system="slora_cluster_8", num_adapters="32")
    assert (fewer.system, fewer.clusters) == ("slora_cluster", 8)
    assert "scheduler.clusters=8" in server(fewer)


@pytest.mark.parametrize("system", ["slora_bmm", "slora_no_unify_mem"])
def test_without_adapters_every_variant_is_the_plain_engine_with_its_own_pool(
    tmp_path: Path, system: str
) -> None:
    row = a_row(tmp_path, system=system, num_adapters="0", kv_token_budget="")
    assert row.system == "slora"
    assert f"replica.kv_token_budget={13000 if system == 'slora_bmm' else 13500}" in server(row)


@pytest.mark.parametrize(
    ("campaign", "adapters", "pool"),
    [
        ("synthetic", 1, 13500),
        ("synthetic", 20, 10000),
        ("synthetic", 199, 9000),
        ("ablation_mem", 199, 9500),
    ],
)
def test_a_pool_that_was_lowered_by_hand_is_looked_up(
    tmp_path: Path, campaign: str, adapters: int, pool: int
) -> None:
    row = a_row(
        tmp_path,
        system="slora_no_unify_mem",
        campaign=campaign,
        num_adapters=str(adapters),
        kv_token_budget="",
    )
    assert f"replica.kv_token_budget={pool}" in server(row)


def test_a_pool_that_nobody_knows_is_said_and_not_guessed(tmp_path: Path, capsys) -> None:
    path = a_file(tmp_path, {"system": "slora_bmm", "kv_token_budget": "", "gpu": "a100_40g"})
    assert main(["--jobs", "1", "--runs", str(path)]) == 0
    assert "slora_bmm on a100_40g S2 has no kv_token_budget in its row, nor in servers.yaml" in (
        capsys.readouterr().out
    )


def test_other_engines_have_their_own_calibrations(tmp_path: Path) -> None:
    row = a_row(tmp_path, system="hf_peft", kv_token_budget="")
    assert row.calibration == "a10g-llama_7b-tp1-hf_peft"
    assert "replica.max_num_seqs=6" in server(row)
    packed = a_row(tmp_path, system="vllm_packed", kv_token_budget="", num_adapters="4")
    assert {"workload.adapters=4", "replica.gpu_memory_utilization=0.92"} <= set(server(packed))


def test_an_answer_that_comes_whole_has_its_first_token_with_its_last(tmp_path: Path) -> None:
    packed = a_row(tmp_path, system="vllm_packed", kv_token_budget="", num_adapters="1", req_rate="0.5")
    figures = simulate(packed)
    assert figures["mean_first_token_s"] == figures["mean_latency_s"]


def test_the_order_of_two_systems_on_one_workload_is_checked(tmp_path: Path) -> None:
    read_rows = read(
        a_file(
            tmp_path,
            {"throughput_rps": "2"},
            {"system": "slora_bmm", "throughput_rps": "1"},
            {"system": "slora_lcfs", "throughput_rps": "1.99"},
        )
    )
    simulated = (1.5, 1.6, 1.7)
    found = pairs(
        [
            Comparison(row, {"throughput_rps": rps}, False)
            for row, rps in zip(read_rows, simulated, strict=True)
        ]
    )
    assert len(found) == 2, "slora and slora_lcfs are tied"
    assert [pair.right for pair in found] == [False, True]
    assert "slora 2 (1.5 simulated) over slora_bmm 1 (1.6 simulated)" in str(found[0])


def test_fitted_rows_are_told_from_others() -> None:
    plan_row = calibrations.load("a10g-llama_7b-tp1").provenance["fitted_rows"][0]
    assert plan_row.startswith("slora a10g S2 synthetic kv_token_budget=14500 num_adapters=")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"req_rate": "fast"}, "line 2 has req_rate = 'fast', must be a number"),
        ({"cv": "nan"}, "line 2 has cv = nan, must be finite"),
        ({"setting": "S9"}, "line 2 has setting 'S9'"),
        ({"req_rate": "0"}, "workload.rate_rps is 0"),
    ],
)
def test_a_bad_row_is_one_sentence_that_names_it(
    tmp_path: Path, capsys, change: dict[str, str], said: str
) -> None:
    assert main(["--jobs", "1", "--runs", str(a_file(tmp_path, change))]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1


def test_a_missing_column_or_file_is_named(tmp_path: Path, capsys) -> None:
    path = tmp_path / "runs.csv"
    path.write_text("system,gpu\nslora,a10g\n")
    assert main(["--jobs", "1", "--runs", str(path)]) == 2
    assert "has no column setting" in capsys.readouterr().err
    assert main(["--jobs", "1", "--runs", str(tmp_path / "nowhere.csv")]) == 2
    assert "nowhere.csv cannot be read" in capsys.readouterr().err


def test_without_the_measured_files_it_says_what_it_skipped(tmp_path: Path, capsys, monkeypatch) -> None:
    monkeypatch.setenv("SIMLORA_MEASURED_DIR", str(tmp_path))
    assert main([]) == 0
    assert "set SIMLORA_MEASURED_DIR" in capsys.readouterr().out


def test_slowing_the_kernels_slows_requests_with_adapters_only(tmp_path: Path) -> None:
    for adapters, slower in (("5", True), ("0", False)):
        row = a_row(tmp_path, req_rate="0.05", duration_s="200", num_adapters=adapters)
        own = calibration_of(row)
        once, again = simulate(row, own), simulate(row, slowed(own, 3.0))
        assert (again["mean_latency_s"] > once["mean_latency_s"]) is slower


def test_a_fit_finds_the_coefficient_that_made_the_runs(tmp_path: Path) -> None:
    true = calibrations.load("a10g-llama_7b-tp1")
    coefficients = dict(true.coefficients)
    start = {"decode.intercept_s": 0.8 * coefficients.pop("decode.intercept_s")}
    fixed = {name: {"value": value, "source": "ours"} for name, value in coefficients.items()}
    plan = Plan("a10g-llama_7b-tp1", [{"gpu": "a10g"}], start, fixed, "")
    lone = [a_row(tmp_path, req_rate=rate) for rate in ("1", "2")]
    made = [Row(row.columns, row.workload, simulate(row, true)) for row in lone]
    (found,) = fit(plan, made, jobs=1)
    assert found == pytest.approx(true.coefficients["decode.intercept_s"], rel=0.01)


def test_a_coefficient_can_be_left_out_to_see_what_it_is_good_for() -> None:
    plan = Plan("a10g-llama_7b-tp1", [], {"a": 1.0, "b": 2.0}, {"c": {"value": 3.0}}, "")
    assert without(plan, ["b", "c"]) == Plan("a10g-llama_7b-tp1", [], {"a": 1.0}, {}, "")


def test_reading_is_strict_about_text(tmp_path: Path) -> None:
    path = tmp_path / "runs.csv"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match="is not a text file"):
        fidelity_rows.read(path)


def test_a_figure_that_nobody_measured_is_left_out_and_the_others_are_compared(tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    path = a_file(tmp_path, {"mean_first_token_s": "", "mean_latency_s": "0"}, {"req_rate": "1"})
    assert main(["--jobs", "1", "--runs", str(path), "--json", str(out)]) == 0
    first, second = json.loads(out.read_text())["rows"]
    assert set(first["error"]) == {"throughput", "attainment"}
    assert set(second["error"]) == {"throughput", "mean_latency", "mean_first_token", "attainment"}


def test_a_row_with_another_pool_is_another_row(tmp_path: Path) -> None:
    assert a_row(tmp_path, kv_token_budget="14500").key != a_row(tmp_path, kv_token_budget="9000").key


def test_what_was_not_fitted_but_taken_from_elsewhere_is_marked_as_derived() -> None:
    provenance = calibrations.load("a10g-llama_7b-tp1").provenance
    padded = provenance["coefficients"]["kernels.mbgmv.decode.per_sequence_max_rank_s"]
    assert padded["kind"] == "derived"
    assert "CaraServe" in padded["source"]


def test_bgmv_costs_what_mbgmv_costs_when_all_ranks_are_the_highest() -> None:
    found = calibrations.load("a10g-llama_7b-tp1").coefficients
    both = (
        found["kernels.mbgmv.decode.per_rank_sum_s"] + found["kernels.mbgmv.decode.per_sequence_max_rank_s"]
    )
    assert found["kernels.bgmv.decode.per_sequence_max_rank_s"] == pytest.approx(both, rel=1e-4)
