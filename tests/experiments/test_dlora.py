"""dLoRA's studies, claims and calibrations, their seeds, what was measured, and what its figures must show."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure

import experiments.dlora
import simlora
from experiments.claims import formulas
from experiments.claims.claim import read as read_claims
from experiments.claims.evaluate import Row, evaluate
from experiments.claims.formulas import FORMULAS
from experiments.claims.verdicts import HOLDS, NEAR, OFF
from experiments.dlora import calibration, measured, replicas, slower, variants
from experiments.studies import draw as draw_module
from experiments.studies import simulating
from experiments.studies.draw import draw
from experiments.studies.found import of_points, write_csv
from experiments.studies.points import Point, points
from experiments.studies.study import Study, read_all
from simlora.config.composing import compose
from simlora.core.errors import InputError
from simlora.core.request import Request
from simlora.latency import calibration as calibrations
from simlora.policies.migration.base import Plan
from simlora.policies.scheduling.credit import Credit
from simlora.sweeps.outcome import RAN, Outcome
from tests.experiments.studied import claims, runs_of
from tests.experiments.test_claims import a_claim

FOLDER = Path(experiments.dlora.__file__).parent
STUDIES = read_all(FOLDER)
TIME, P90 = "latency_per_output_token_s.mean", "latency_per_output_token_s.p90"
QUEUE = "queue_per_output_token_s.mean"


@pytest.fixture(autouse=True)
def own_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SIMLORA_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("SIMLORA_MEASURED_DIR", str(tmp_path / "measured"))


# Studies


def test_every_figure_of_the_evaluation_is_there_and_says_where_it_stands_in_the_paper() -> None:
    drawn = {name.removeprefix("figure_") for name in STUDIES if name.startswith("figure_")}
    assert drawn == {"2b", "9", "10", "11a", "11b", "12", "13", "14", "15"}
    for name, study in STUDIES.items():
        number = name.removeprefix("figure_").replace("a", "(a)").replace("b", "(b)")
        assert study.source.startswith("dLoRA (OSDI'24), ")
        assert len(study.series) <= len(draw_module.COLOURS), "every curve has one of its own"
        assert not name.startswith("figure_") or study.source.endswith(f"Figure {number}")


ALL = [point for study in STUDIES.values() for point in points(study) if not point.skip]


def test_the_released_code_is_the_same_in_every_figure() -> None:
    """figure_11a makes it from its parts, because a system belongs to a series, not to a panel."""
    parts = next(p for p in ALL if p.key[:3] == ("figure_11a", "released", "dlora"))
    others = [each for each in parts.overrides if "." not in each and "system=" not in each]
    ours, _ = compose(parts.overrides)
    theirs, _ = compose([*others, "system=dlora_released"])
    for slot in ("scheduler", "router", "placement", "migration"):
        assert ours[slot] == theirs[slot], slot


# What claims can say


SPOT = "figure_1 small {} {} throughput_rps"


def row_of(
    folder: Path, text: str, numbers: Callable[[Point], float] = lambda _: 0.0, seeds: str = ""
) -> Row:
    """Evaluate the one claim in `text`; its runs have these throughputs."""
    path = claims(folder, text)
    path.write_text(seeds + path.read_text())
    (claim,) = read_claims(path, read_all(folder))
    runs = [*runs_of(claim), *(point for spot in claim.evidence.values() for point in spot.points)]
    return evaluate("paper", claim, {p.overrides: Outcome(RAN, {"throughput_rps": numbers(p)}) for p in runs})


def of_kind(kind: str, sense: str = "up_to", **keys: Any) -> str:
    return a_claim(kind=kind, sense=sense, published=2.0, **keys)


def test_over_seeds_a_claim_is_judged_by_means(tmp_path: Path) -> None:
    pair, reason = (
        [SPOT.format(name, 1) for name in ("fcfs", "lcfs")],
        "It was {figure_1 large fcfs 2 throughput_rps}.",
    )
    text = of_kind("ratio", "about", reason=reason, ratios=[pair])
    by_seed = {("fcfs", 3): 1.0, ("fcfs", 4): 9.0, ("lcfs", 3): 1.0, ("lcfs", 4): 1.0}
    row = row_of(tmp_path, text, lambda p: by_seed[p.series, p.settings["seed"]], "seeds: [3, 4]\n")
    assert (row.simulated, row.runs, row.verdict) == (5.0, 4, OFF)
    assert row.reason == "It was 5."


def test_a_pair_of_curves_is_a_ratio_for_each_x(tmp_path: Path) -> None:
    text = of_kind("ratio", ratios=[[f"figure_1 small {name} throughput_rps" for name in ("lcfs", "fcfs")]])
    # lcfs at 1 is left out by the study.
    row = row_of(tmp_path, text, lambda p: {("lcfs", 2): 3.9, ("fcfs", 2): 2.0}[p.series, p.x])
    assert (row.simulated, row.verdict) == (pytest.approx(1.95), HOLDS)


@pytest.mark.parametrize(
    ("first", "second", "bound", "found", "runs"),
    [
        (1.0, 3.0, "2.5", 1.75, 2),
        (1.0, 1.5, "2.0", 2.0, 2),
        (4.0, 8.0, "2.0", 0.5, 1),
    ],
)
def test_a_limit_is_the_largest_x_under_a_bound_and_looks_no_further_than_a_point_above(
    tmp_path: Path, first: float, second: float, bound: str, found: float, runs: int
) -> None:
    text = of_kind("value", simulated=SPOT.format("fcfs", "<" + bound))
    row = row_of(tmp_path, text, lambda p: {1: first, 2: second}[p.x])
    assert (row.simulated, row.runs) == (pytest.approx(found), runs)


def test_numbers_may_be_computed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(formulas.NUMBERS, "n", lambda: [1.0, 2.3])
    row = row_of(tmp_path, of_kind("ratio", computed="n"))
    assert (row.simulated, row.verdict, row.runs) == ([1.0, 2.3], NEAR, 0)
    monkeypatch.setitem(formulas.NUMBERS, "n", lambda: [2.0])
    assert row_of(tmp_path, of_kind("value", computed="n")).verdict == HOLDS
    with pytest.raises(InputError, match="computed is 'm'"):
        row_of(tmp_path, of_kind("value", computed="m"))


# What was measured

ARTIFACT = {
    "figure9": {"rows": [{"exec_type": 2.0, "rate": 8.0, "avg_lat": 1.2}]},
    "figure10": [{"policy": "merge", "stride": 4.0, "avg_lat": 2.3, "p90_lat": 6.2}],
    "figure11a": [{"migration_type": 1.0, "rate": 5.0, "queueing_delay": 0.4}],
    "figure12": [{"exec_type": 3.0, "num_adapters": 16.0, "throughput": 12.7}],
}


def an_artifact(tree: Any) -> None:
    measured.path().parent.mkdir(exist_ok=True)
    measured.path().write_text(json.dumps(tree))


def test_measured_points_are_found_by_study_series_and_x() -> None:
    an_artifact(ARTIFACT)
    theirs = measured.read()
    assert theirs is not None
    found = {
        (point.study, point.panel, point.series, point.x): {
            name: one for name, (one,) in theirs.of(point).items()
        }
        for point in ALL
        if theirs.of(point)
    }
    plus = {("what_if_slower", f"plus_{ms}", "merged_only", 4): {TIME: 2.3, P90: 6.2} for ms in (0, 4, 8, 12)}
    plus |= {("what_if_event_loop", loop, "round_robin", 5): {QUEUE: 0.4} for loop in ("released", "at_once")}
    assert found == plus | {
        ("figure_9", "7B_maf1", "peft", 8): {TIME: 1.2},
        ("figure_9", "7B_maf2", "peft", 8): {TIME: 1.2},
        ("figure_10", "one_gpu", "merged_only", 4): {TIME: 2.3, P90: 6.2},
        ("figure_11a", "released", "round_robin", 5): {QUEUE: 0.4},
        ("figure_12", "eight_gpus", "released", 16): {"throughput_rps": 12.7},
    }


def test_all_of_the_artifact_s_points_are_in_a_figure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SIMLORA_MEASURED_DIR")
    theirs = measured.read()
    if theirs is None:
        pytest.skip(f"there is no {measured.path()}")
    drawn = {(point.study, point.panel, point.series, float(point.x)) for point in ALL if theirs.of(point)}
    assert drawn == theirs.rows.keys()


# Several seeds, drawn


def small(name: str, **settings: Any) -> Study:
    """Return one of the studies with 4 s of requests, at both ends of its x."""
    study = STUDIES[name]
    ends = [replace(panel, x=panel.x[:: max(len(panel.x) - 1, 1)]) for panel in study.panels]
    return replace(study, panels=ends, settings={**study.settings, "workload.duration_s": 4, **settings})


@pytest.fixture
def two_seeds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replicas, "SEEDS", [0, 1])
    monkeypatch.setattr(simulating, "read_seeds", lambda folder: [0, 1])


def test_a_point_has_a_run_a_seed_which_are_drawn_and_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = small("figure_10")
    theirs = measured.Measured({("figure_10", "one_gpu", "merged_only", 4.0): {TIME: 2.3}})
    found = of_points(points(study), [0, 1], 1, theirs.of)
    assert len(found) == 8
    least, most = sorted(found[0].figures(TIME))
    assert least < most
    figures: list[Figure] = []
    monkeypatch.setattr(draw_module.plt, "close", figures.append)
    draw(study, found, tmp_path / "figure.png")
    labels = [text.get_text() for text in figures[0].legends[0].get_texts()]
    assert "least to most of 2 seeds" in labels
    write_csv(tmp_path / "figure.csv", study, found, seeds=True)
    rows = pd.read_csv(tmp_path / "figure.csv")
    of = rows.iloc[0]
    assert of[f"{TIME} mean"] == pytest.approx((least + most) / 2)
    assert (of[f"{TIME} least"], of[f"{TIME} most"], of["seeds"]) == (least, most, 2)
    assert rows[f"{TIME} measured"].dropna().tolist() == [2.3]
    assert "workload.stride=4" in of["overrides"]


@pytest.mark.usefixtures("two_seeds")
def test_the_command_draws_a_study_and_says_what_it_lacks(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(simulating, "read_all", lambda folder: {"figure_12": small("figure_12")})
    assert simulating.main(measured.FOLDER, ["figure_12", "--out", str(tmp_path / "out"), "--jobs", "1"]) == 0
    assert "dlora_ae.json; set SIMLORA_MEASURED_DIR" in capsys.readouterr().out
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"figure_12.png", "figure_12.csv"}


# Calibrations, and what is no run


SEVEN = calibrations.load(calibration.name(*calibration.MEASURED))


def test_an_iteration_takes_15_ms_merged_27_ms_unmerged_and_a_switch_20_ms() -> None:
    assert calibration.iteration_s(SEVEN, merged=True) == pytest.approx(15e-3, rel=1e-4)
    assert calibration.iteration_s(SEVEN, merged=False) == pytest.approx(27e-3, rel=1e-4)
    assert calibration.switch_s(SEVEN) == pytest.approx(20e-3, rel=1e-4)


def test_where_the_gpu_is_the_bottleneck_the_adapters_take_what_figure_5_says() -> None:
    assert calibration.lora_cost() == [calibration.prefill_share(SEVEN, adapters=16)]
    assert calibration.prefill_share(SEVEN, adapters=16) == pytest.approx(0.389, rel=1e-4)
    assert calibration.prefill_share(SEVEN, adapters=8) == pytest.approx(0.389 / 2, rel=1e-4)


def test_larger_models_take_longer_by_their_layers_and_weights() -> None:
    ours = [SEVEN, *(calibrations.load(calibration.name(*each)) for each in calibration.DERIVED)]
    merged_ms = [1e3 * calibration.iteration_s(each, True) for each in ours]
    assert merged_ms == pytest.approx([15, 25.6, 49.2], abs=0.05)
    lora_ms = [1e3 * calibration.iteration_s(each, False) for each in ours]
    assert [lora - base for lora, base in zip(lora_ms, merged_ms, strict=True)] == pytest.approx(
        [12, 12 * 40 / 32, 12 * 80 / 32], rel=0.01
    )
    # 6.5 and 12.7 billion weights are adapted, and a quarter of 68.5.
    switched = [calibration.switch_s(each) for each in ours]
    assert switched == pytest.approx([20e-3, 20e-3 * 12.69 / 6.476, 20e-3 * 68.45 / 4 / 6.476], rel=0.001)


def test_a_what_if_calibration_is_longer_by_its_milliseconds_and_nothing_else() -> None:
    plain, longer = (
        calibrations.load(name)
        for name in ("a800_80g-llama_2_7b-tp1-dlora", str(slower.FOLDER / "plus_8ms.yaml"))
    )
    more = {key: longer.coefficients[key] - value for key, value in plain.coefficients.items()}
    assert {key for key, value in more.items() if value} == {"prefill.intercept_s", "decode.intercept_s"}
    assert more["decode.intercept_s"] == pytest.approx(8e-3)


def test_the_example_of_section_4_2_comes_out_exactly() -> None:
    assert slower.example_ms("dlora_unmerged_only") == 300
    assert slower.example_ms("dlora_merged_only") == 250
    assert [comparison.passed for comparison in FORMULAS["dlora_switch"]()] == [True, True]


def test_busy_and_memory_are_shares_of_the_time_until_the_last_arrival() -> None:
    columns = {"time_s": [0.0, 2.0, 3.0, 9.0], "running": [1, 0, 2, 0], "kv_tokens": [30, 0, 60, 0]}
    samples = pd.DataFrame({**columns, "adapter_tokens": 20, "capacity_tokens": 100})
    busy, memory = replicas._used(samples, 5.0)
    assert busy == pytest.approx(4 / 5)
    assert memory == pytest.approx((2 * 0.5 + 1 * 0.2 + 2 * 0.8) / 5)


def test_queueing_is_a_share_of_the_time_of_a_replica_s_requests() -> None:
    """As the artifact has it: means first, so that a short request counts little."""
    table = pd.DataFrame({"replica": [0, 0, 1], "queue_s": [0.0, 9.0, 1.0], "latency_s": [2.0, 10.0, 4.0]})
    assert replicas._queueing(SimpleNamespace(requests=table)) == [9 / 12, 1 / 4]


@pytest.mark.usefixtures("two_seeds")
def test_replicas_are_told_apart_and_inference_takes_nearly_all(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(replicas, "_study", few)
    assert replicas.main([]) == 0
    printed = capsys.readouterr().out
    assert "Figure 2(b), share of queueing, worst replica over best" in printed
    assert "Figure 13, dLoRA, 18 requests/s: busy" in printed
    assert "if it waited for plans" in printed
    assert all(ratio >= 1 for ratio in replicas.imbalance())
    (least,) = replicas.least_inference()
    assert 0.9 < least < 1
    assert all(comparison.says.endswith("ms a plan") for comparison in replicas.solved_within_milliseconds())


def few(name: str) -> Study:
    """Return a study of two replicas that is over soon."""
    study = replace(small(name, **{"cluster.replicas": 2}), panels=STUDIES[name].panels)
    return replace(study, x=replace(study.x, values=[replicas.SPREAD])) if name == "figure_2b" else study


def test_shares_of_time_add_up_and_plans_count_as_if_inference_waited() -> None:
    summary = {
        "replicas": [{"busy_s": 60.0}, {"busy_s": 40.0}],
        "adapters": {"switch_s": 2.0},
        "migration": {"plans": 3},
        "makespan_s": 60.0,
    }
    found = replicas.shares(summary, 0.2)
    assert (*found, found.inference) == pytest.approx((0.02, 0.01, 0.97))


# What the figures must show


@pytest.mark.parametrize("stride", [4, 32])
def test_dlora_is_ahead_of_both_strawmen_at_either_end_of_figure_10(stride: int) -> None:
    def mean_s(system: str) -> float:
        of = [f"system={system}", "workload=functions", f"workload.stride={stride}", "timeline=false"]
        return simlora.simulate(of).summary["latency_per_output_token_s"]["mean"]

    ours, strawmen = ("dlora", "dlora_released"), ("dlora_merged_only", "dlora_unmerged_only")
    assert max(map(mean_s, ours)) < min(map(mean_s, strawmen))


# Read otherwise


@pytest.mark.parametrize("merged", [False, True])
def test_of_full_batches_the_times_of_iterations_are_the_profiled_ones(merged: bool) -> None:
    """15 and 27 ms; half a batch takes 13.3 and 25.1."""
    own = variants.ByBatch().thresholds
    constant = variants.Unbounded().thresholds
    for each in (own, constant):
        each.stands(merged, 16, 16)
        each.passed(100)
    assert own.throughputs() == pytest.approx(constant.throughputs(), rel=0.01)
    own.tune()
    own.stands(merged, 8, 8)
    own.passed(1)
    switch_s = 0.02
    assert own.throughputs() == pytest.approx(
        (8 / (0.0133 + (not merged) * switch_s), 8 / (0.0251 + merged * switch_s)), rel=0.01
    )


def test_only_without_a_bound_alpha_grows_past_its_start() -> None:
    """Merging would never have been faster."""
    found = []
    for policy in (variants.Unbounded(), Credit()):
        policy.thresholds.stands(False, 1, 16)
        for _ in range(3):
            policy.thresholds.passed(1)
            policy.thresholds.tune()
        found.append(policy.thresholds.alpha)
    assert found == pytest.approx([1.1**3, 1.0])


def test_requests_move_by_their_wait_and_not_by_their_number() -> None:
    """Of two replicas the first has more requests, and the second those that wait."""

    def requests(count: int, arrival_s: float, admitted_s: float) -> list[Request]:
        found = [Request(i, None, arrival_s, 8, 8) for i in range(count)]
        for each in found:
            each.admitted_s = admitted_s
        return found

    asked: list[list[int]] = []

    class Moves(variants.ByDelay):
        def _among(self, replicas: list[int], view: Any, cause: str) -> Plan:
            asked.append(replicas)
            return Plan()

    of = {0: requests(40, 5.0, 6.0), 1: requests(2, 9.0, -1.0)}
    view = SimpleNamespace(now_s=12.0, outstanding=np.asarray([40, 2]), requests_of=of.__getitem__)
    for above_s in (1.4, 1.6):
        Moves(delay_above_s=above_s).plan(view)
    assert asked == [[0, 1]]
