"""vLLM's studies can be composed, and find the measured runs that they repeat."""

from __future__ import annotations

import csv
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import experiments.vllm
from experiments.fidelity.vllm import predict
from experiments.fidelity.vllm.predict import Row, read
from experiments.scenarios import scenario
from experiments.studies import measured, vllm_runs
from experiments.studies.metrics import METRICS
from experiments.studies.points import Point, points
from experiments.studies.reading import measured_dir
from experiments.studies.simulating import main
from experiments.studies.study import read as read_study
from experiments.studies.study import read_all
from simlora.api import simulate
from simlora.core.errors import DoesNotFit
from simlora.engine.cluster.simulation import Simulation
from simlora.sweeps.outcome import figure
from simlora.workload.lengths import Fixed
from simlora.workload.per_adapter import PerAdapter
from tests.experiments.studied import a_vllm_study, vllm_runs_csv

STUDIES = read_all(Path(experiments.vllm.__file__).parent)
MEASURED = ("ranks", "rates", "slots")
ALL = [point for study in STUDIES.values() for point in points(study) if not point.skip]
LARGEST = {point.key[:3]: point for point in ALL}


def first(study_path: Path) -> Point:
    return next(points(read_study(study_path)))


def published(study_path: Path, rows: list[Row]) -> dict[str, list[Any]]:
    study = read_study(study_path)
    return measured.published(study, next(points(study)), rows)


# The studies


def test_the_questions_and_the_measured_figures_are_there() -> None:
    questions = {"how_many_slots", "one_large_adapter", "slot_cliff", "which_highest_rank"}
    assert set(STUDIES) == questions | set(MEASURED)
    assert all(study.note for study in STUDIES.values())


@pytest.mark.parametrize("point", LARGEST.values(), ids=lambda point: " ".join(point.key[:3]))
def test_a_series_at_its_last_value_of_x_can_be_composed(point: Point) -> None:
    try:
        run = scenario(point.overrides)
    except DoesNotFit:
        assert (point.study, point.settings["replica.max_lora_rank"]) in {
            ("ranks", 32),
            ("which_highest_rank", 256),
        }
        return
    assert point.system == "vllm"
    assert run.until_s == point.settings["workload.duration_s"]


def test_what_is_beyond_the_measured_ranks_is_said_to_be_an_extrapolation() -> None:
    for point in ALL:
        assert bool(point.beyond) is (point.settings["replica.max_lora_rank"] > 32), point.key


def test_the_measured_runs_that_figures_show_are_found() -> None:
    rows = measured.rows()
    if rows is None or not (measured_dir() / vllm_runs.FILE).exists():
        pytest.skip(f"there are no measured runs of vLLM in {measured_dir()}")
    shown = {
        name: sum(bool(measured.published(study, point, rows)) for point in points(study))
        for name, study in STUDIES.items()
    }
    assert {name for name, count in shown.items() if count} == set(MEASURED)
    assert min(shown[name] for name in MEASURED) >= 25


# Metrics


def test_every_metric_is_in_the_summary_of_a_run(tmp_path: Path) -> None:
    summary = simulate(first(a_vllm_study(tmp_path)).overrides).summary
    classes = "slo.classes=[{name: gold, share: 0.2, ttft_s: 1}, {name: free, share: 0.8, ttft_s: 9}]"
    kept, rented, back = (
        simulate([*overrides, "workload.duration_s=60", "timeline=false"]).summary
        for overrides in (
            ["system=fastlibra", "workload=agent"],
            [classes, "autoscaler=by_queue", "cluster.replicas=2"],
            ["clients.patience_s=5"],
        )
    )
    runs = {"kv": kept, "slo": rented, "cost": rented, "scaling": rented, "clients": back}
    for metric in METRICS:
        assert figure(runs.get(metric.partition(".")[0], summary), metric) is not None, metric


def test_metrics_are_those_that_the_measured_client_reports(tmp_path: Path) -> None:
    point = first(a_vllm_study(tmp_path, settings={"workload.duration_s": 100, "until_s": 100}))
    summary = simulate(point.overrides).summary
    client = predict.figures(Simulation(scenario(point.overrides)).run().requests(), 100)
    assert figure(summary, "ttft_s.p50") == pytest.approx(client["ttft_p50_ms"] / 1000)
    assert figure(summary, "tbt_s.mean") == pytest.approx(client["itl_mean_ms"] / 1000, rel=0.02)
    assert figure(summary, "throughput_tps") == pytest.approx(client["output_tokens_per_s"], rel=0.02)


# Measured runs


def test_a_measured_run_is_found_and_its_times_are_in_seconds(tmp_path: Path) -> None:
    rows = read(vllm_runs_csv(tmp_path, {}, {"output_tokens_per_s": "410", "ttft_p50_ms": ""}))
    assert published(a_vllm_study(tmp_path), rows) == {
        "throughput_tps": [400, 410],
        "tbt_s.mean": [0.02, 0.02],
        "ttft_s.p50": [0.05],
    }


@pytest.mark.parametrize(
    "change",
    [
        {"max_cpu_loras": "400"},
        {"rate_values": "0.4 0.8 0.1", "rate_counts": "1 2 1"},
        {"kv_tokens": "7"},
    ],
)
def test_the_same_run_may_be_written_otherwise(tmp_path: Path, change: dict[str, str]) -> None:
    assert published(a_vllm_study(tmp_path), read(vllm_runs_csv(tmp_path, change)))


@pytest.mark.parametrize(
    "change",
    [
        {"model": "qwen-2.5-7b-instruct"},
        {"max_cpu_loras": "3"},
        {"module_ranks": "8 16 16"},
        {"rate_values": "0.1 0.4 1.6"},
        {"duration_s": "3600"},
    ],
)
def test_another_run_is_not_taken_for_it(tmp_path: Path, change: dict[str, str]) -> None:
    assert published(a_vllm_study(tmp_path), read(vllm_runs_csv(tmp_path, change))) == {}


def test_rates_fall_on_adapters_as_the_workload_gives_them() -> None:
    rates = [0.3, 0.2, 0.1]
    lengths = {"prompt_tokens": Fixed(8), "output_tokens": Fixed(8)}
    for adapters in (1, 2, 3, 4, 31, 128):
        given = Counter(PerAdapter(**lengths, adapters=adapters, rates_rps=rates)._rates_rps.tolist())
        counts = vllm_runs._evenly(adapters, len(rates))
        assert {rate: count for rate, count in zip(rates, counts, strict=True) if count} == given


def test_a_figure_has_the_measured_runs_beside_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    paper, out = tmp_path / "paper", tmp_path / "out"
    monkeypatch.setenv("SIMLORA_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("SIMLORA_MEASURED_DIR", str(tmp_path))
    study = a_vllm_study(paper)
    assert measured.missing_of([read_study(study)]) == [str(tmp_path / "vllm_lora_runs.csv")]
    assert measured.rows() is None
    vllm_runs_csv(tmp_path, {})
    assert main(paper, ["slots", "--out", str(out), "--jobs", "1"]) == 0
    assert "skipped the measured points" not in capsys.readouterr().out
    with (out / "slots.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["tbt_s.mean published"] for row in rows] == ["0.02", ""]
    assert all(0.005 < float(row["tbt_s.mean"]) < 0.1 for row in rows)
