"""`python -m experiments.fidelity` takes any file in the schema, simulates what it can, and says how far off it is."""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from experiments.fidelity.__main__ import main
from experiments.fidelity.compare import Comparison, medians
from experiments.fidelity.fit import Plan, fit, without
from experiments.fidelity.predict import calibration_of, server, simulate, slowed, trace
from experiments.fidelity.report import pairs
from experiments.fidelity.rows import FIGURES, MEASURED, Row, read
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


def a_file(folder: Path, *changes: dict[str, str], row: Mapping[str, str] = CELLS) -> Path:
    """Write a file of this row, as each of the changes makes it."""
    path = folder / "runs.csv"
    with path.open("w", newline="") as file:
        table = csv.DictWriter(file, list(row))
        table.writeheader()
        table.writerows([{**row, **change} for change in changes])
    return path


def a_row(folder: Path, **change: str) -> Row:
    return read(a_file(folder, change))[0]


def test_errors_are_signed_and_relative_but_for_attainment(tmp_path: Path) -> None:
    simulated = dict(zip(MEASURED, (1.2, 15.0, 1.0, 0.75), strict=True))
    comparison = Comparison(a_row(tmp_path), simulated, fitted=False)
    assert comparison.error == pytest.approx(
        {"throughput": -0.2, "mean_latency": 0.25, "mean_first_token": -0.2, "attainment": -0.25}
    )
    assert comparison.off == pytest.approx({"mean_latency": 3.0, "mean_first_token": -0.25})


def test_a_row_says_whether_it_was_saturated(tmp_path: Path) -> None:
    for attainment, load in (("1", "below"), ("0.7", "near"), ("0.2", "past")):
        assert a_row(tmp_path, attainment_6s=attainment).load == load


def test_medians_are_of_absolute_errors(tmp_path: Path) -> None:
    row = a_row(tmp_path)
    off = [{name: row.measured[name] * (1 + by) for name in MEASURED} for by in (-0.3, 0.1, 0.2)]
    found = medians([Comparison(row, simulated) for simulated in off], FIGURES)
    assert found["throughput"]["median"] == pytest.approx(0.2)
    assert found["throughput"]["worst"] == pytest.approx(0.3)
    assert found["mean_latency"]["median_s"] == pytest.approx(2.4)


def test_the_workload_is_the_published_one_and_its_prompts_have_one_token_more(tmp_path: Path) -> None:
    requests = trace(a_row(tmp_path))
    assert len(requests) == 40
    assert requests.prompt_tokens.min() >= 9
    assert requests.prompt_tokens.max() <= 512
    assert [spec.rank for spec in requests.adapters[:5]] == [64, 32, 16, 8, 64]


def test_a_row_that_simlora_itself_measured_is_predicted_exactly(tmp_path: Path) -> None:
    """A figure that was not measured, or is 0, is left out of a row's errors."""
    figures = simulate(a_row(tmp_path))
    unknown = {"req_rate": "1", "mean_first_token_s": "", "mean_latency_s": "0"}
    path = a_file(tmp_path, {name: repr(value) for name, value in figures.items()}, unknown)
    out = tmp_path / "out.json"
    assert main(["--jobs", "1", "--runs", str(path), "--json", str(out)]) == 0
    row, other = json.loads(out.read_text())["rows"]
    assert row["error"] == {"throughput": 0, "mean_latency": 0, "mean_first_token": 0, "attainment": 0}
    assert (row["system"], row["fitted"]) == ("slora", False)
    assert row["measured"]["throughput_rps"] == figures["throughput_rps"]
    assert set(other["error"]) == {"throughput", "attainment"}


def test_rows_that_cannot_be_simulated_are_counted_with_what_they_lack(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    unknown_pool = {"system": "slora_bmm", "kv_token_budget": "", "gpu": "a100_40g"}
    others = [{"system": "time_machine"}, {"system": "time_machine"}, {"gpu": "h100_80g"}, unknown_pool]
    assert main(["--jobs", "1", "--runs", str(a_file(tmp_path, *others))]) == 0
    printed = capsys.readouterr().out
    assert "not simulated: 2 rows, system time_machine does not exist yet" in printed
    assert "not simulated: 1 rows, there is no calibration h100_80g-llama_7b-tp1" in printed
    assert "slora_bmm on a100_40g S2 has no kv_token_budget in its row, nor in servers.yaml" in printed


def test_clustering_from_as_many_adapters_as_there_are_is_plain_slora(tmp_path: Path) -> None:
    assert a_row(tmp_path, system="slora_cluster_32", num_adapters="32").system == "slora"
    fewer = a_row(tmp_path, system="slora_cluster_8", num_adapters="32")
    assert (fewer.system, fewer.clusters) == ("slora_cluster", 8)
    assert "scheduler.clusters=8" in server(fewer)


@pytest.mark.parametrize(("system", "pool"), [("slora_bmm", 13000), ("slora_no_unify_mem", 13500)])
def test_without_adapters_every_variant_is_the_plain_engine_with_its_own_pool(
    tmp_path: Path, system: str, pool: int
) -> None:
    row = a_row(tmp_path, system=system, num_adapters="0", kv_token_budget="")
    assert row.system == "slora"
    assert f"replica.kv_token_budget={pool}" in server(row)


@pytest.mark.parametrize(
    ("campaign", "adapters", "pool"),
    [
        ("synthetic", "1", 13500),
        ("synthetic", "20", 10000),
        ("synthetic", "199", 9000),
        ("ablation_mem", "199", 9500),
    ],
)
def test_a_pool_that_was_lowered_by_hand_is_looked_up(
    tmp_path: Path, campaign: str, adapters: str, pool: int
) -> None:
    variant = {"system": "slora_no_unify_mem", "kv_token_budget": ""}
    row = a_row(tmp_path, **variant, campaign=campaign, num_adapters=adapters)
    assert f"replica.kv_token_budget={pool}" in server(row)


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
    others = [
        {"system": "slora_bmm", "throughput_rps": "1"},
        {"system": "slora_lcfs", "throughput_rps": "1.99"},
    ]
    measured = read(a_file(tmp_path, {"throughput_rps": "2"}, *others))
    simulated = ({"throughput_rps": rps} for rps in (1.5, 1.6, 1.7))
    found = pairs([Comparison(*each, False) for each in zip(measured, simulated, strict=True)])
    assert [pair.right for pair in found] == [False, True], "slora and slora_lcfs are tied"
    assert "slora 2 (1.5 simulated) over slora_bmm 1 (1.6 simulated)" in str(found[0])


def test_a_calibration_names_its_fitted_rows_and_marks_what_was_derived() -> None:
    provenance = calibrations.load("a10g-llama_7b-tp1").provenance
    first, *_ = provenance["fitted_rows"]
    assert first.startswith("slora a10g S2 synthetic kv_token_budget=14500 num_adapters=")
    padded = provenance["coefficients"]["kernels.mbgmv.decode.per_sequence_max_rank_s"]
    assert padded["kind"] == "derived"


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
    tmp_path: Path, capsys: pytest.CaptureFixture[str], change: dict[str, str], said: str
) -> None:
    assert main(["--jobs", "1", "--runs", str(a_file(tmp_path, change))]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"system,gpu\nslora,a10g\n", "has no column setting"),
        (b"\xff\xfe\x00", "is not a text file"),
        (None, "runs.csv cannot be read"),
    ],
)
def test_what_is_no_table_of_runs_is_named(tmp_path: Path, content: bytes | None, said: str) -> None:
    path = tmp_path / "runs.csv"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(InputError, match=said):
        read(path)


def test_slowing_the_kernels_slows_requests_with_adapters_only(tmp_path: Path) -> None:
    for adapters, slower in (("5", True), ("0", False)):
        row = a_row(tmp_path, req_rate="0.05", duration_s="200", num_adapters=adapters)
        own = calibration_of(row)
        once, again = simulate(row, own), simulate(row, slowed(own, 3.0))
        assert (again["mean_latency_s"] > once["mean_latency_s"]) is slower


def test_a_fit_finds_the_coefficient_that_made_the_runs(tmp_path: Path) -> None:
    true = calibrations.load("a10g-llama_7b-tp1")
    coefficients = dict(true.coefficients)
    true_s = coefficients.pop("decode.intercept_s")
    fixed = {name: {"value": value, "source": "ours"} for name, value in coefficients.items()}
    plan = Plan("a10g-llama_7b-tp1", [{"gpu": "a10g"}], {"decode.intercept_s": 0.8 * true_s}, fixed, "")
    lone = [a_row(tmp_path, req_rate=rate) for rate in ("1", "2")]
    made = [Row(row.columns, row.workload, simulate(row, true)) for row in lone]
    assert fit(plan, made, jobs=1) == pytest.approx([true_s], rel=0.01)


def test_a_coefficient_can_be_left_out_to_see_what_it_is_good_for() -> None:
    plan = Plan("a10g-llama_7b-tp1", [], {"a": 1.0, "b": 2.0}, {"c": {"value": 3.0}}, "")
    assert without(plan, ["b", "c"]) == Plan("a10g-llama_7b-tp1", [], {"a": 1.0}, {}, "")


def test_bgmv_costs_what_mbgmv_costs_when_all_ranks_are_the_highest() -> None:
    found = calibrations.load("a10g-llama_7b-tp1").coefficients
    both = (
        found["kernels.mbgmv.decode.per_rank_sum_s"] + found["kernels.mbgmv.decode.per_sequence_max_rank_s"]
    )
    assert found["kernels.bgmv.decode.per_sequence_max_rank_s"] == pytest.approx(both, rel=1e-4)
