"""The speed report and the demonstration, without asserting a time."""

from __future__ import annotations

from pathlib import Path

import pytest

import experiments.demo as demo
from experiments.scenarios import scenario
from experiments.speed import __main__ as speed_report
from experiments.speed import against, growth, reading, sizes, ten_million
from experiments.speed.scenarios import (
    SCENARIOS,
    Speed,
    measure,
)
from experiments.speed.start import start_s

HOURS = [speed for speed in SCENARIOS if speed.name.startswith("vLLM")]
LONG = [speed for speed in SCENARIOS if speed.name in ("FastLibra, 100,000 nodes", "LoRAServe, eight hours")]


def test_a_scenario_is_measured_with_all_its_figures() -> None:
    fast, plain = measure(Speed("tiny", 1, 50)), measure(Speed("tiny", 1, 50, fast_forward=False))
    assert set(fast) == {
        "wall_s", "requests_per_s", "token_steps_per_s", "events_per_request", "peak_memory_bytes",
    }  # fmt: skip
    assert all(value > 0 for value in fast.values())
    assert fast["events_per_request"] < plain["events_per_request"]


@pytest.mark.parametrize("speed", [*HOURS, *LONG], ids=lambda speed: speed.name)
def test_a_scenario_gets_as_many_requests_as_it_says(speed: Speed) -> None:
    run = scenario(speed.overrides())
    assert len(run.trace) == speed.requests
    assert speed not in HOURS or run.until_s == 3600


def test_a_ratio_is_the_median_of_runs_in_turn(monkeypatch) -> None:
    rates = iter([20.0, 10.0, 90.0, 10.0, 30.0, 10.0])
    monkeypatch.setattr(speed_report, "run", lambda speed: {"requests_per_s": next(rates)})
    assert speed_report.ratio(SCENARIOS[0], SCENARIOS[1]) == 3.0


def test_what_a_decision_costs_is_measured_of_routers_and_schedulers() -> None:
    for router in growth.ROUTERS:
        assert growth.route_us(router, replicas=2, adapters=5, calls=3) > 0.0
    for scheduler in growth.SCHEDULERS:
        assert growth.schedule_us(scheduler, batch=3, calls=3) > 0.0


def test_a_whole_run_is_measured_with_its_files() -> None:
    found = sizes.measure(requests=50, replicas=2, suffix=".csv")
    assert min(found.values()) > 0.0
    assert found["simulation_s"] < found["cpu_s"]
    figures = {"peak_memory_bytes": 3e8, "cpu_s": 2.5, "simulation_s": 0.05, "file_bytes": 2e5}
    assert sizes.line(2_000, figures).split() == ["2,000", "300", "MB", "2.5", "s", "25.0", "µs", "0.2", "MB"]


@pytest.mark.parametrize("suffix", reading.FORMATS)
def test_reading_is_measured(suffix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "PIECE", 20)
    path = tmp_path / f"trace{suffix}"
    reading.write(50, path)
    found = reading.measure(path)
    assert found["requests"] == 50
    assert min(found.values()) > 0.0
    words = reading.line(suffix, 2_000_000, {"requests": 1e6, "peak_memory_bytes": 3e8, "cpu_s": 2.5})
    assert words.split() == f"1,000,000 {suffix} 2.0 MB 300 MB 2.50 s 2.50 µs".split()


def test_a_file_is_followed_from_its_rows_to_a_page(capsys: pytest.CaptureFixture[str]) -> None:
    assert ten_million.main(["--requests", "60", "--replicas", "2", "--from", ".parquet"]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    steps = {words[0]: float(words[5].replace(",", "")) for words in lines[2:-2]}
    commands = ["simlora", "simlora-report"]
    assert {*commands, "reading", "simulating", "summary", "writing", "report.html"} == steps.keys()
    assert min(steps.values()) > 0.0
    assert {"trace.parquet", "requests.parquet", "report.html", "comparison.html"} <= set(lines[-1])


def test_checkouts_are_compared_by_their_fastest_runs_and_by_turn() -> None:
    words = against.line("1 replica", 1_000, old_s=[0.06, 0.05], new_s=[0.04, 0.05]).split()
    assert words == ["1", "replica", "1,000", "50.0", "40.0", "1.25", "[1.00,", "1.50]"]


def test_the_demonstration_answers_how_many_gpus(tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.setattr(demo, "TRACE", tmp_path / "azure_llm_2023_conv.csv")
    monkeypatch.setattr(demo, "ROOT", tmp_path)
    monkeypatch.setattr(demo, "REPLICAS", (2, 3))
    monkeypatch.chdir(tmp_path)
    assert demo.demonstrate() == 0
    assert (tmp_path / demo.OUT / "report.html").exists()
    assert "SLO attainment" in capsys.readouterr().out


def test_a_start_is_timed(tmp_path: Path) -> None:
    wall_s, cpu_s = start_s(tmp_path)
    assert wall_s > 0
    assert cpu_s > 0
