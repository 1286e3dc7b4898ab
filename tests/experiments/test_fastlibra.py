"""FastLibra's experiments: studies that can be read, what is computed from them, and how small ones come out."""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from experiments.fastlibra import ideal, over_time, reductions
from experiments.fastlibra.reductions import Cell
from simlora.config.composing import compose
from simlora.config.setup import prepare
from simlora.core.errors import InputError
from simlora.engine.cluster.simulation import Simulation
from simlora.workload.reuse import ideal_reuse

# Figure 11 --------------------------------------------------------------------------------


def cell(scenario: str, ours: float, vllm: float, slora: float) -> Cell:
    seconds = {"fastlibra": [ours], "vllm": [vllm], "slora": [slora]}
    return Cell(scenario, "7B", 20, seconds, seconds, {"fastlibra": 4.0, "vllm": 2.0, "slora": 0.0})


def test_a_reduction_is_taken_cell_by_cell() -> None:
    found = [cell("chatbot", 1.0, 2.0, 4.0), cell("agent", 1.0, 1.0, 10.0)]
    assert reductions.reduction(found, "ttft_s", "vllm") == pytest.approx(25.0)
    assert reductions.reduction(found, "tpot_s", "slora") == pytest.approx(82.5)


def test_past_its_peak_a_system_rules_the_means_over_rates_but_not_the_mean_of_each_rate() -> None:
    """At the second of two rates the other one's queue has no end."""
    seconds = {"fastlibra": [1.0, 1.0], "vllm": [2.0, 98.0], "slora": [1.0, 1.0]}
    found = [Cell("chatbot", "7B", 20, seconds, seconds, {"fastlibra": 2.0, "vllm": 1.0, "slora": 2.0})]
    assert reductions.reduction(found, "ttft_s", "vllm") == pytest.approx(100 * (1 - 1 / 50))
    assert reductions.reduction(found, "ttft_s", "vllm", each_rate=True) == pytest.approx(
        100 * ((1 - 1 / 2) + (1 - 1 / 98)) / 2
    )


def translation_and_agent() -> list[Cell]:
    return [
        replace(cell(each, 1.0, 2.0, 4.0), peak_rps=dict.fromkeys(("fastlibra", "vllm", "slora"), 2.0))
        for each in ("translation", "agent")
    ]


def test_means_are_over_rates_up_to_our_peak() -> None:
    """Latencies that follow the rate: x / 2 seconds for ours, twice that for the others."""
    study = reductions.study("chatbot", 50)
    assert study.settings["workload.adapters"] == 50

    def figures(point, metric: str) -> float:
        return point.x / 2 * (1 if point.series == "fastlibra" else 2)

    found = reductions._cell("chatbot", 50, study, "7B", figures)
    assert found.peak_rps == pytest.approx({"fastlibra": 1.0, "vllm": 0.5, "slora": 0.5})
    rates = [x for x in study.panel("7B").x if x <= 1]
    assert found.ttft_s["fastlibra"] == pytest.approx([x / 2 for x in rates])
    assert found.ttft_s["vllm"] == pytest.approx(rates)


def test_the_figures_table_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cells = (cell("chatbot", 0.1, 0.2, 0.4), *translation_and_agent())
    made = [replace(each, model=model) for each in cells for model in ("7B", "13B")]
    monkeypatch.setattr(reductions, "cells", lambda jobs: made)
    assert reductions.main(["--out", str(tmp_path)]) == 0
    rows = list(csv.DictReader((tmp_path / "figure_11.csv").read_text().splitlines()))
    assert [row["ttft_s vllm"] for row in rows[:2]] == ["0.2", "0.2"]


# Over time --------------------------------------------------------------------------------


def test_means_over_time_are_of_short_runs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(over_time, "DURATION_S", 60.0)
    assert over_time.main([]) == 0
    printed = capsys.readouterr().out
    assert [
        each in printed for each in ("agent: mean", "adapters asked for before", "S-LoRA: mean TTFT")
    ] == [True] * 3


# Mooncake's trace -------------------------------------------------------------------------


def test_one_by_one_a_replica_finds_all_that_could_be_found() -> None:
    """Memory without end, conversations of our own making; with less of it, less is found."""
    group = ["system=fastlibra", "workload=agent", "workload.duration_s=300", "workload.rate_rps=3"]
    scenario = prepare(*compose([*group, *ideal.ENDLESS, *ideal.ONE_BY_ONE])).scenario
    could = ideal_reuse(scenario.trace, scenario.cache_block_tokens)
    found = Simulation(scenario).run()
    assert 0.5 < could.of_tokens < 1.0
    assert found.cached_tokens >= could.found_blocks * scenario.cache_block_tokens, "answers are found too"
    none = prepare(*compose([*group, "replica.kv_token_budget=600", "replica.host_kv_bytes=0"])).scenario
    assert Simulation(none).run().cached_tokens < found.cached_tokens


def test_on_mooncake_s_trace_the_hit_rate_is_its_own() -> None:
    try:
        simulated = ideal.found(0, *ideal.ONE_BY_ONE)
    except InputError:
        pytest.skip("the published trace is not here; set SIMLORA_TRACE_DIR")
    assert simulated == (105_592, 105_592, 288_500)
    assert np.isclose(105_592 / 288_500, 0.366, atol=5e-5)
