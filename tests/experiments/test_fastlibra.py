"""FastLibra's experiments: what is computed from its studies, its calibrations, and how small ones come out."""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from experiments.claims.spots import Figures
from experiments.fastlibra import ablations, averages, calibration, ideal, over_time, reductions
from experiments.fastlibra.reductions import Cell
from experiments.infer.evaluating import Evaluation, Simulated, place, write_table
from experiments.infer.inference import SEEDS
from experiments.infer.unknowns import read
from experiments.profiles.build import Entry, summed
from experiments.profiles.scaling import gpu, model, setting
from experiments.studies.points import Point
from experiments.studies.reading import measured_dir
from experiments.studies.study import Study
from simlora.config.composing import compose
from simlora.config.setup import prepare
from simlora.core.errors import InputError
from simlora.engine.cluster.simulation import Simulation
from simlora.latency import calibration as calibrations
from simlora.latency.calibration import Calibration
from simlora.latency.iteration import IterationModel
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


# Figure 15 --------------------------------------------------------------------------------


def test_no_cost_model_gains_more_than_memory_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """TTFT grows with the rate: of the first, by 1, 2, 3 and 4 times 50 ms, of LRU by their squares.

    LRU passes 500 ms between the third and the fourth rate, and the other one nowhere: with all four rates the mean of
    ratios is the largest.
    """
    asked: list[Point] = []

    def figures(of: Study) -> Figures:
        rates = of.panels[0].x

        def figure(point: Point, metric: str) -> float:
            asked.append(point)
            step = 1 + rates.index(point.x)
            return 0.05 * step ** (2 if point.series == "wos" else 1)

        return figure

    monkeypatch.setattr(averages, "_figures", figures)
    ttft, tpot, peak = averages.most_without("chatbot", "wos")
    assert ttft == tpot == pytest.approx((1 + 2 + 3 + 4) / 4)
    assert peak == pytest.approx(100 * (1 - (1 + 0.25 * (0.5 - 0.45) / (0.8 - 0.45)) / 1.25))
    settings = {point.series: point.settings for point in asked}
    assert settings["fastlibra"]["loader"] == "cached"
    assert "loader" not in settings["wos"]


def a_table(folder: Path, *rows: tuple[float, float, float]) -> Path:
    """Write a table of the ablations: of each setting TTFT without the tree, without the cost model, and its bound."""
    unknowns = read(ablations.FOLDER, [ablations.QUESTION])
    settings = [unknowns.defaults, *({**unknowns.defaults, "copy_ms": 1.0 + i} for i in range(len(rows) - 1))]
    all_of = []
    for each, (wom, wos, most) in zip(settings, rows, strict=True):
        found = {claim.id: [*map(float, claim.published)] for claim in (*unknowns.claims, *unknowns.beside)}
        for name, ttft in zip(
            (ablations.TREE, ablations.COST, ablations.MOST), (wom, wos, most), strict=True
        ):
            found[name][0] = ttft
        all_of += [Evaluation(place(each, seed), found, {"": 1}, {"": 0.0}) for seed in SEEDS]
    path = folder / "table.csv"
    write_table(unknowns, Simulated(all_of, all_of[: len(SEEDS)], all_of, "these"), len(SEEDS), path)
    return path


def test_the_ablations_are_counted_where_they_come_out_in_order(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Three settings: one in order, one with both the wrong way round, one in which the cost model gains nothing."""
    table = a_table(tmp_path, (1.3, 1.2, 1.5), (1.1, 1.2, 1.3), (1.5, 1.0, 1.05))
    assert ablations.main(["--table", str(table)]) == 0
    said = capsys.readouterr().out.splitlines()
    assert said[0].endswith("1.000 to 1.200, above 1.005 in 2")
    assert said[1] == "in order, WOM > WOS > 1.005: 1 of 3 settings"
    assert said[2].endswith("headline numbers within 25%: 1")
    assert "WOM 1.3; 1.18; 19.8; WOS 1.2; 1.15; 17.2" in said[4]
    assert "excluded by the bound: 33% of 3 settings" in said[-1]


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

    found = reductions.cell_of("chatbot", 50, study, "7B", figures)
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


ALL = tuple(calibration.SOURCES)
PROFILES = measured_dir() / "profiles"
OPERATORS = {
    "llama_7b": ("llama_2_7b", "vidur_llama2-7b_a100_mlp.csv"),
    "llama_13b": ("llama_2_7b", "vidur_llama2-7b_a100_mlp.csv"),
    "llama_34b": ("llama_2_70b", "vidur_llama2-70b_a100_mlp.csv"),
    "llama_30b": ("llama_2_70b", "vidur_llama2-70b_a100_mlp.csv"),
}
"""What lies behind the calibrations that ours are scaled from."""


def load(shape: str, tp: int) -> Calibration:
    return calibrations.load(calibration.setting(shape, tp).name)


def test_other_links_between_cards_are_a_what_if(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert calibration.main(["--peer-link", "nvlink_3"]) == 2
    assert "give it a folder with --out" in capsys.readouterr().err
    assert calibration.main(["--peer-link", "nvlink_3", "--out", str(tmp_path)]) == 0
    for shape, tp in ALL:
        ours = load(shape, tp).coefficients
        faster = calibrations.load(str(tmp_path / f"{calibration.setting(shape, tp).name}.yaml")).coefficients
        changed = {name for name, value in faster.items() if value != ours[name]}
        assert changed == ({"collectives.bytes_per_s"} if tp > 1 else set())


@pytest.mark.parametrize("shape, tp", ALL)
def test_no_step_is_shorter_than_reading_weights_and_contexts_takes(shape: str, tp: int) -> None:
    """Kernels alone, without host and collectives, read at 60 to 75 % of the memory's rate."""
    bandwidth, ours = gpu(calibration.GPU).memory_bandwidth_bytes_per_s, load(shape, tp)
    read_s = model(shape).weight_bytes / tp / bandwidth
    kernels_s = ours.need("decode.intercept_s") - calibration.host_s(model(shape).layers)
    assert 0.6 < read_s / kernels_s < 0.75
    assert read_s < ours.need("prefill.intercept_s") + 128 * ours.need("prefill.per_token_s")
    context_s = model(shape).kv_bytes_per_token / tp / bandwidth
    assert context_s / ours.need("decode.per_context_token_s") == pytest.approx(0.916, abs=0.005)


@pytest.mark.parametrize("shape, tp", ALL)
def test_no_token_takes_less_than_its_arithmetic(shape: str, tp: int) -> None:
    """Each card does its share; without collectives an A100's share of the peak is left, 60 to 75 %.

    A causal prompt of n tokens takes 4 n^2 / 2 operations of attention a layer and element of hidden.
    """
    ours, of, flops = load(shape, tp), model(shape), gpu(calibration.GPU).fp16_flops * tp
    assert 0.6 < 2 * of.parameters / flops / ours.need("prefill.per_token_s") < 0.75
    attention_s = 4 * of.hidden * of.layers / 2 / flops
    assert attention_s / ours.need("prefill.per_token_sq_s") == pytest.approx(0.62, abs=0.01)


@pytest.mark.skipif(not PROFILES.is_dir(), reason=f"no published profiles in {PROFILES}")
@pytest.mark.parametrize("shape, tp", ALL)
def test_scaling_operators_one_by_one_gives_the_same(shape: str, tp: int) -> None:
    """Coefficients are scaled here, and there every operator's own times."""
    name, file = OPERATORS[shape]
    target, source = calibration.setting(shape, tp), setting("a100_80g", name, tp)
    built = summed(Entry(target, source, file, "", None, ("", "")), PROFILES).coefficients
    for phase in ("prefill", "decode"):
        built[f"{phase}.intercept_s"] += calibration.host_s(target.model.layers)
    theirs = IterationModel(Calibration("", target.gpu.name, shape, tp, {}, built))
    ours = IterationModel(load(shape, tp))
    for tokens in (128, 512, 2048, 4096):
        prefill_s = theirs.prefill_s(tokens, tokens**2)
        assert ours.prefill_s(tokens, tokens**2) == pytest.approx(prefill_s, rel=0.05)
    for batch in (1, 16, 64):
        step_s = theirs.decode_s(batch, 1000 * batch)
        assert ours.decode_s(batch, 1000 * batch) == pytest.approx(step_s, rel=0.055)
    for collective in ("latency_s", "bytes_per_s") if tp > 1 else ():
        key = f"collectives.{collective}"
        assert load(shape, tp).need(key) == pytest.approx(built[key], rel=1e-3)
