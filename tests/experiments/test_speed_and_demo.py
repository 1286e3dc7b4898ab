"""The speed report and the demonstration, without asserting a time."""

from __future__ import annotations

from pathlib import Path

import pytest

import experiments.demo as demo
from experiments.scenarios import scenario
from experiments.speed import __main__ as speed_report
from experiments.speed import against, crowded, growth, reading, sizes, ten_million
from experiments.speed.__main__ import line
from experiments.speed.scenarios import (
    PAIRS,
    PLANNED,
    SCENARIOS,
    SWAPPED,
    Speed,
    measure,
    simpy_timeouts_per_s,
)
from simlora.core.errors import InputError


def test_a_scenario_is_measured_with_all_its_figures() -> None:
    fast, plain = measure(Speed("tiny", 1, 50)), measure(Speed("tiny", 1, 50, fast_forward=False))
    assert set(fast) == {
        "wall_s", "requests_per_s", "token_steps_per_s", "events_per_request", "peak_memory_bytes",
    }  # fmt: skip
    assert all(value > 0 for value in fast.values())
    assert fast["events_per_request"] < plain["events_per_request"]


def test_the_scenarios_that_are_promised_are_there_and_pairs_differ_in_one_thing() -> None:
    assert {(s.replicas, s.requests) for s in SCENARIOS} >= {(1, 10_000), (8, 10_000), (1_000, 1_000_000)}
    for above, below in PAIRS.values():
        assert above.replicas == below.replicas or above.requests == below.requests


def test_an_hour_of_vllm_has_as_many_requests_as_it_says() -> None:
    hours = [speed for speed in SCENARIOS if speed.name.startswith("vLLM")]
    assert [speed.name for speed in hours] == ["vLLM's hour, 32 slots", "vLLM's hour, 160 slots"]
    for speed in hours:
        run = scenario(speed.overrides())
        assert (len(run.trace), run.until_s) == (speed.requests, 3600)


@pytest.mark.parametrize("speed", [SWAPPED, PLANNED], ids=lambda speed: speed.name)
def test_a_system_at_length_gets_as_many_requests_as_it_says(speed: Speed) -> None:
    assert len(scenario(speed.overrides()).trace) == speed.requests


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
    for suffix in (None, ".csv"):
        found = sizes.measure(requests=50, replicas=2, suffix=suffix)
        assert min(found.values()) > 0.0
        assert found["simulation_s"] < found["cpu_s"]
    words = sizes.line(
        2_000, {"peak_memory_bytes": 3e8, "cpu_s": 2.5, "simulation_s": 0.05, "file_bytes": 2e5}
    ).split()
    assert words == ["2,000", "300", "MB", "2.5", "s", "25.0", "µs", "0.2", "MB"]


@pytest.mark.parametrize("suffix", reading.FORMATS)
def test_reading_is_measured(suffix, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(reading, "PIECE", 20)
    path = tmp_path / f"trace{suffix}"
    reading.write(50, path)
    found = reading.measure(path)
    assert found["requests"] == 50
    assert min(found.values()) > 0.0
    words = reading.line(suffix, 2_000_000, {"requests": 1e6, "peak_memory_bytes": 3e8, "cpu_s": 2.5}).split()
    assert words == ["1,000,000", suffix, "2.0", "MB", "300", "MB", "2.50", "s", "2.50", "µs"]


def test_a_file_is_followed_from_its_rows_to_a_page(capsys) -> None:
    assert ten_million.main(["--requests", "60", "--replicas", "2", "--from", ".parquet"]) == 0
    printed = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert printed[0][1:] == ["60", "requests", "for", "1,000", "adapters", "on", "2", "replicas"]
    names = [line[0] for line in printed[2:-2]]
    assert names == [
        "simlora",
        "reading",
        "simulating",
        "summary",
        "writing",
        "report.html",
        "simlora-report",
    ]
    assert all(line[2::2] == ["s", "s", "MB"] for line in printed[2:-2])
    assert all(float(line[5].replace(",", "")) > 0.0 for line in printed[2:-2])
    assert printed[-2] == ["A", "progress", "bar", "was", "shown."]
    assert [word for word in printed[-1] if "." in word and word[0].isalpha()] == [
        *("trace.parquet", "requests.parquet", "report.html", "comparison.html")
    ]


def test_a_command_that_fails_is_said_in_its_own_words() -> None:
    with pytest.raises(
        InputError, match=r"simlora.cli.report ended with exit status 2: .*none does not exist"
    ):
        ten_million.ran(["simlora.cli.report", "none"])


def test_what_a_request_costs_a_crowded_replica_is_measured(monkeypatch) -> None:
    assert crowded.beside_waiting_us(waiting=3, requests=2) > 0.0
    assert crowded.beside_loading_us(loading=3, reserve="paged", requests=2) > 0.0
    monkeypatch.setattr(crowded, "STRETCHES_S", (15, 60))
    (some, first_us), (more, then_us) = crowded.stretches()
    assert 0 < some < more
    assert min(first_us, then_us) > 0.0


def test_checkouts_are_compared_by_their_fastest_runs_and_by_turn() -> None:
    words = against.line("1 replica", 1_000, old_s=[0.06, 0.05], new_s=[0.04, 0.05]).split()
    assert words == ["1", "replica", "1,000", "50.0", "40.0", "1.25", "[1.00,", "1.50]"]


def test_a_checkout_without_simlora_cannot_be_compared(tmp_path: Path, capsys) -> None:
    assert against.main([str(tmp_path)]) == 2
    assert "has no simlora/__init__.py, must be the root of a checkout" in capsys.readouterr().err


def test_a_scenario_that_the_old_checkout_lacks_is_named(tmp_path: Path) -> None:
    with pytest.raises(
        InputError, match=r"cannot measure the scenario 'none' of 5 requests: .*not enough values"
    ):
        against.cpu_s(against.PROJECT, "none", 5)


def test_a_line_shows_target_and_memory() -> None:
    row = {
        "scenario": "1 replica",
        "requests": 10,
        "requests_per_s": 1234.5,
        "target_requests_per_s": 100_000,
        "token_steps_per_s": 1.0,
        "events_per_request": 2.5,
        "peak_memory_bytes": 3e6,
        "simpy_timeouts_per_s": 1e5,
        "build": "compiled",
    }
    of_simpy = ["1,234", "1.23%", "6.7%"]
    assert line(row).split() == [
        *("1", "replica", "10", "compiled", *of_simpy, "1", "2.50", "3", "MB", "100,000")
    ]


def test_simpy_alone_is_measured_beside() -> None:
    assert simpy_timeouts_per_s(1_000) > 0


def test_the_demonstration_says_what_it_runs_on(tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.setattr(demo, "TRACE", tmp_path / "azure_llm_2023_conv.csv")
    assert "workload=slora" in demo.command()
    assert "S-LoRA's synthetic workload, because there is no" in capsys.readouterr().out
    demo.TRACE.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n")
    assert "workload=azure_llm_2023_conv" in demo.command()
    assert "ten minutes of the Azure LLM conversation trace" in capsys.readouterr().out


def test_the_demonstration_answers_how_many_gpus(tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.setattr(demo, "TRACE", tmp_path / "azure_llm_2023_conv.csv")
    monkeypatch.setattr(demo, "ROOT", tmp_path)
    monkeypatch.setattr(demo, "REPLICAS", (2, 3))
    monkeypatch.chdir(tmp_path)
    assert demo.demonstrate() == 0
    assert (tmp_path / demo.OUT / "report.html").exists()
    assert "SLO attainment" in capsys.readouterr().out
