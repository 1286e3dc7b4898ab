"""Inference of unpublished conditions: what a setting changes, what claims leave of a range, and what is kept."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.gaussian_process import GaussianProcessRegressor

from experiments.claims import __main__ as board
from experiments.claims import evaluate
from experiments.infer import __main__ as command
from experiments.infer.coming_out import expected, off_by
from experiments.infer.comparing import HOLDS, TARGET, factor, simulated, t
from experiments.infer.conditions import under
from experiments.infer.emulating import Emulator
from experiments.infer.evaluating import (
    Evaluation,
    Evaluator,
    Numbers,
    Place,
    Simulated,
    place,
    read_table,
    write_table,
)
from experiments.infer.inference import SEEDS, infer, infer_again
from experiments.infer.posterior import posterior
from experiments.infer.saying import NOT_FOUND, true_under
from experiments.infer.searching import design, differences, distance, optimised
from experiments.infer.unknowns import Budget, Unknowns, read
from experiments.studies.points import Point, points
from experiments.studies.running import run_all
from experiments.studies.running import under as run_under
from experiments.studies.study import read_all
from simlora.core.errors import InputError
from simlora.latency import calibration as calibrations
from simlora.sweeps.outcome import NOT_SIMULATED, Outcome
from tests.experiments.studied import a_study

EXPERIMENTS = Path(__file__).parents[2] / "experiments"
UNKNOWNS = """
unknowns:
  load_ms:
    title: a load
    unit: ms
    says: "a few to tens of milliseconds"
    range: [5, 50]
    scale: log
    default: 20
    times: {adapter_load.latency_s: 1, adapter_load.bytes_per_s: -1}
  answers:
    title: longest answer
    says: not said
    range: [32, 96]
    whole: true
    default: 64
    set: {"workload.output_tokens": "[8,{x}]"}
  order:
    title: which request is served first
    says: not said
    choices: {first: {}, last: {set: {scheduler: lcfs}}}
    default: first
    where: {series: [fcfs]}
fit: [rate-small]
judge: [rate-large]
"""
CLAIMS = """
claims:
  - {id: rate-small, where: a, metric: b, kind: value, published: 0.9, simulated: figure_1 small fcfs 1 throughput_rps}
  - {id: rate-large, where: a, metric: b, kind: value, published: 1.5, simulated: figure_1 large fcfs 2 throughput_rps}
"""


def a_paper(folder: Path, unknowns: str = UNKNOWNS) -> Path:
    """Write a paper with one study, two claims and three unknowns."""
    a_study(folder)
    (folder / "claims.yaml").write_text(CLAIMS)
    (folder / "unknowns.yaml").write_text(unknowns)
    return folder


@pytest.fixture
def paper(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Unknowns:
    """Return its unknowns, with runs kept in a folder of their own."""
    monkeypatch.setenv("SIMLORA_CACHE_DIR", str(tmp_path / "kept"))
    return read(a_paper(tmp_path / "paper"))


def at(paper: Unknowns, **changes: Any) -> dict[str, Any]:
    """Return the defaults with changes."""
    return paper.defaults | changes


def found_at(at: Place, numbers: Numbers) -> Evaluation:
    return Evaluation(at, numbers, {next(iter(numbers)): 1}, {next(iter(numbers)): 0.1})


def a_point(paper: Unknowns, series: str = "fcfs") -> Point:
    return next(point for point in points(read_all(paper.folder)["figure_1"]) if point.series == series)


# What numbers are compared by


@given(st.floats(0.5, 2.0), st.floats(1e-6, 1e6))
def test_a_number_is_compared_by_the_logarithm_of_its_ratio_to_the_published_one(
    ratio: float, published: float
) -> None:
    assert t([ratio * published], [published])[0] - TARGET == pytest.approx(math.log(ratio), abs=0.01)


def test_a_number_within_a_tenth_holds_and_an_increase_of_nothing_counts_as_a_factor_of_20() -> None:
    assert t([1.1], [1.0])[0] - TARGET == pytest.approx(HOLDS)
    assert factor(t([0.0], [12.0]) - TARGET)[0] == pytest.approx(20, rel=0.01)


# What a setting changes in a run


def test_the_defaults_change_nothing_but_the_seed(paper: Unknowns) -> None:
    point = a_point(paper)
    assert under(paper, paper.defaults, 7, point) == replace(point, settings={**point.settings, "seed": 7})


def test_a_coefficient_is_multiplied_in_the_calibration_that_the_run_has(paper: Unknowns) -> None:
    changed = calibrations.load(
        under(paper, at(paper, load_ms=40.0), 0, a_point(paper)).settings["calibration"]
    )
    own = calibrations.load("a10g-llama_7b-tp1")
    ratios = {name: value / own.need(name) for name, value in changed.coefficients.items() if value}
    factors = {"adapter_load.latency_s": 2.0, "adapter_load.bytes_per_s": 0.5}
    assert ratios == pytest.approx(dict.fromkeys(ratios, 1.0) | factors)
    assert changed.provenance["coefficients"]["adapter_load.latency_s"]["source"] == "assumed"


def test_a_key_is_set_to_the_value(paper: Unknowns) -> None:
    settings = under(paper, at(paper, answers=48.0), 0, a_point(paper)).settings
    assert settings["workload.output_tokens"] == "[8,48]"


def test_a_reading_concerns_the_series_that_it_names(paper: Unknowns) -> None:
    last = at(paper, order="last")
    assert under(paper, last, 0, a_point(paper)).settings["scheduler"] == "lcfs"
    assert "scheduler" not in under(paper, last, 0, a_point(paper, "lcfs")).settings


def test_points_are_run_as_they_are_changed_and_found_as_they_are_asked_for(paper: Unknowns) -> None:
    point = a_point(paper)
    as_it_is = run_all([point], jobs=1)[point.overrides]
    with run_under(lambda asked: replace(asked, settings={**asked.settings, "workload.rate_rps": 0.2})):
        changed = run_all([point], jobs=1)[point.overrides]
    assert changed.figure("requests.finished") < as_it_is.figure("requests.finished")
    assert run_all([point], jobs=1)[point.overrides] == as_it_is


# How unknowns are written


CARASERVE = read(EXPERIMENTS / "caraserve")


@given(st.floats(0.0, 1.0))
def test_a_share_of_a_range_is_found_again(share: float) -> None:
    for unknown in CARASERVE.unknowns:
        if not unknown.choices:
            assert unknown.share(unknown.at(share)) == pytest.approx(share, abs=1e-9)


@pytest.mark.parametrize("path", sorted(EXPERIMENTS.glob("*/unknowns.yaml")), ids=str)
def test_every_paper_says_which_sentence_bounds_each_unknown(path: Path) -> None:
    found = read(path.parent)
    assert found.fitted
    assert found.judged
    assert all("§" in unknown.says or "Figure" in unknown.says for unknown in found.unknowns)


@pytest.mark.parametrize(
    ("wrong", "right", "said"),
    [
        ("judge: [rate-large]", "judge: [rate-small]", "rate-small is fitted and judged"),
        ("range: [5, 50]", "range: [25, 50]", "load_ms: default is 20, must lie within the range"),
        ("adapter_load.latency_s: 1", "adapter_load.latency: 1", "adapter_load.latency_s"),
        ("default: first", "default: frist", "did you mean first"),
        ("scale: log", "scale: lag", "scale is 'lag'; did you mean log"),
        ("range: [5, 50]", "choices: {}", "load_ms must have either a range or choices"),
        ("series: [fcfs]", "study: [figure_2]", r"where.study is 'figure_2'"),
    ],
)
def test_a_mistake_is_named(tmp_path: Path, wrong: str, right: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        read(a_paper(tmp_path, UNKNOWNS.replace(wrong, right)))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("loud_ms=3", "load_ms"),
        ("load_ms=many", "must be a number"),
        ("load_ms=3", "must be from 5 to 50"),
        ("order=middle", "choose one of first, last"),
    ],
)
def test_a_setting_that_cannot_be_is_refused(paper: Unknowns, text: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        paper.parsed(text)


def test_the_design_begins_with_the_defaults_and_covers_every_range(paper: Unknowns) -> None:
    found = design(paper, 16)
    assert found[0] == paper.defaults
    assert found == design(paper, 16)
    for unknown in paper.unknowns:
        shares = sorted(unknown.share(each[unknown.name]) for each in found[1:])
        assert shares[0] < 0.26
        assert shares[-1] > 0.74


# What claims leave of a range


def made_up(paper: Unknowns, true_load_ms: float) -> list[Evaluation]:
    """Return evaluations of a simulator whose number falls with the load and hangs on nothing else."""
    published = float(paper.fitted[0].published[0])
    return [
        found_at(place(setting, 0), {"rate-small": [published * (true_load_ms / setting["load_ms"]) ** 0.5]})
        for setting in design(paper, 32)
    ]


@pytest.mark.parametrize("true_load_ms", [8.0, 30.0])
def test_the_interval_holds_the_condition_under_which_the_claim_was_made(
    paper: Unknowns, true_load_ms: float
) -> None:
    """Draws follow the weights."""
    found = posterior(paper, Emulator(paper, paper.fitted, made_up(paper, true_load_ms)))
    load, answers, order = paper.unknowns
    low, high = found.interval(load)
    assert low < true_load_ms < high
    assert high / low < 0.5 * 50 / 5
    assert found.bits(load) > 0.5
    assert max(found.bits(answers), found.bits(order)) < 0.1  # of which the number says nothing
    assert found.weights.sum() == pytest.approx(1)
    drawn = np.asarray([float(setting["load_ms"]) for setting in found.drawn(1000)])
    assert np.mean((drawn >= low) & (drawn <= high)) == pytest.approx(0.9, abs=0.02)


def test_an_evaluation_that_is_left_out_is_predicted_by_the_others(paper: Unknowns) -> None:
    evaluations = made_up(paper, 8.0)
    emulator = Emulator(paper, paper.fitted, evaluations)
    (process,) = emulator.processes["rate-small"]
    one = emulator.left_out()["rate-small"]
    rows, values = process.X_train_, process.y_train_.ravel()
    errors = []
    for index in range(len(values)):  # by the definition: trained again without it, with the same kernel
        others = np.arange(len(values)) != index
        again = GaussianProcessRegressor(process.kernel_, optimizer=None).fit(rows[others], values[others])
        errors.append(float(again.predict(rows[[index]])[0] - values[index]) * process._y_train_std)
    assert one.factor == pytest.approx(float(np.median(factor(np.asarray(errors)))), rel=1e-6)
    assert one.factor < 1.1 < one.spread


def test_a_claim_without_a_number_counts_as_far_off(paper: Unknowns) -> None:
    none, right = (found_at(place(paper.defaults, 0), {"rate-small": numbers}) for numbers in (None, [0.9]))
    assert distance(paper.fitted, [right]) == pytest.approx(0)
    assert distance(paper.fitted, [none]) == pytest.approx(3)


# The command


def test_an_inference_is_written_again_from_what_is_kept_or_from_its_table_alone(
    paper: Unknowns, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    budget = "budget: {design: 4, judged: 2, search: 1, draws: 1, rounds: 1, seeds: 2}"
    (paper.folder / "unknowns.yaml").write_text(UNKNOWNS + budget)
    monkeypatch.setattr(command, "papers", lambda: {"paper": paper.folder})
    arguments = ["paper", "--jobs", "1", "--out", str(tmp_path)]

    def written(*more: str) -> dict[str, bytes]:
        assert command.main([*arguments, *more]) == 0
        return {name: (tmp_path / f"paper.{name}").read_bytes() for name in ("md", "json", "csv", "png")}

    first = written()
    found = json.loads(first["json"])["claims"]
    assert set(found) == {"rate-small", "rate-large"}
    conditions = board.conditions(tmp_path)
    assert conditions["rate-small"].endswith("(fitted)")
    assert conditions["rate-large"] == found["rate-large"]["true_under"]
    monkeypatch.setattr("experiments.infer.evaluating._simulated", lambda *_: pytest.fail("simulated again"))
    assert written() == first
    monkeypatch.setenv("SIMLORA_CACHE_DIR", str(tmp_path / "nothing"))
    assert written("--kept") == first
    assert command.main([*arguments, "--kept", "--draws", "4"]) == 2
    assert "--kept writes the page of the table as it is" in capsys.readouterr().err


@pytest.mark.parametrize("name", sorted(command.papers()))
def test_the_table_beside_each_page_has_what_the_page_says(name: str) -> None:
    unknowns = read(command.papers()[name])
    found = read_table(unknowns, SEEDS, command.PAGES / f"{name}.csv")
    written = json.loads((command.PAGES / f"{name}.json").read_text())
    assert len({one.place.setting for one in found.all}) == written["settings"]
    assert sum(sum(one.runs.values()) for one in found.all) == written["runs"]
    assert len(found.left) == len(SEEDS) * (1 + unknowns.budget.draws)


def test_a_table_tells_a_claim_that_does_not_fit_from_one_that_was_not_asked_for(
    paper: Unknowns, tmp_path: Path
) -> None:
    default = found_at(place(paper.defaults, 1), {"rate-small": None, "rate-large": [1.5]})
    last = found_at(place(at(paper, order="last"), 1), {"rate-small": [0.9]})
    first = found_at(place(at(paper, load_ms=6.0), 0), {"rate-small": [0.8]})
    found = Simulated([first, default, first], [default, last, last], [first, default, last])
    write_table(paper, found, 1, tmp_path / "table.csv")
    again = read_table(paper, [1], tmp_path / "table.csv")
    assert again.all == found.all
    assert again.left == found.left
    assert [one.place for one in again.searched] == [first.place, first.place, default.place]


def test_other_claims_can_be_fitted(paper: Unknowns) -> None:
    found = read(paper.folder, ["rate-large"])
    assert [[one.id for one in claims] for claims in (found.fitted, found.judged)] == [
        ["rate-large"],
        ["rate-small"],
    ]
    with pytest.raises(InputError, match="--fit"):
        read(paper.folder, ["rate-lagre"])


def test_a_table_of_other_unknowns_is_refused(paper: Unknowns, tmp_path: Path) -> None:
    row = found_at(place(paper.defaults, 0), {"rate-small": [1.0]})
    write_table(replace(paper, judged=[]), Simulated([row], [row], [row]), 1, tmp_path / "t.csv")
    with pytest.raises(InputError, match="'rate-large 0'"):
        read_table(paper, [0], tmp_path / "t.csv")


def test_a_setting_is_printed_with_its_claims(
    paper: Unknowns, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command, "papers", lambda: {"paper": paper.folder})
    assert command.main(["paper", "--at", "load_ms=12", "--jobs", "1"]) == 0
    assert {"rate-small: 0.9", "rate-large: 1.5"} <= set(
        re.findall(r"rate-\w+: [\d.]+", capsys.readouterr().out)
    )


def test_a_claim_comes_out_at_a_setting_if_the_mean_over_seeds_does_at_the_setting_as_printed(
    paper: Unknowns,
) -> None:
    budget = Budget(design=4, judged=2, search=1, draws=1, rounds=1, seeds=2)
    found = infer(Evaluator(replace(paper, budget=budget), 1), lambda _: None)
    told = [(one.claim, true_under(paper, one)) for one in found.predicted]
    printed = [(claim, text) for claim, text in told if NOT_FOUND not in text]
    assert printed
    for claim, text in printed:
        setting = paper.parsed("" if text == "as it is" else text)
        again = Evaluator(paper, 1)([(place(setting, seed), [claim]) for seed in SEEDS])
        assert np.abs(np.mean([differences(claim, each) for each in again], axis=0)).max() <= HOLDS


def test_a_claim_is_off_by_the_mean_over_seeds(paper: Unknowns) -> None:
    """Of two seeds that are off by the same factor, one too high and one too low, neither counts alone."""
    (claim,) = paper.fitted
    published = float(claim.published[0])
    found = [
        found_at(place(paper.defaults, seed), {"rate-small": [published * ratio]})
        for seed, ratio in ((0, 2.0), (1, 0.5))
    ]
    assert [*off_by(claim, found).values()] == [pytest.approx(0, abs=0.01)]
    assert [*off_by(claim, found, [1]).values()] == [pytest.approx(math.log(2), abs=0.01)]
    assert off_by(claim, found, [0, 1, 2]) == {}


def test_a_claim_does_not_come_out_at_a_setting_that_lacks_some_of_the_seeds(paper: Unknowns) -> None:
    alone, (claim,) = replace(paper, judged=[]), paper.fitted
    published = float(claim.published[0])
    lucky = found_at(place(at(paper, load_ms=8.0), 0), {"rate-small": [published]})
    off = [found_at(place(paper.defaults, seed), {"rate-small": [2 * published]}) for seed in SEEDS]
    simulated = Simulated(made_up(paper, 8.0), [*off, *off], [lucky, *off])
    (one,) = infer_again(alone, simulated).predicted
    assert one.conditions is None
    assert one.nearest == paper.defaults
    assert one.looked_at == 2


def test_a_claim_that_has_not_come_out_is_looked_for_where_it_most_probably_does(paper: Unknowns) -> None:
    alone, (claim,) = replace(paper, judged=[]), paper.fitted
    off = [one for one in made_up(paper, 8.0) if off_by(claim, [one])[one.place.setting] > 2 * HOLDS]
    ((_, setting),) = expected(alone, paper.fitted, off, 0)
    assert float(setting["load_ms"]) == pytest.approx(8, rel=0.2)
    assert expected(alone, paper.fitted, made_up(paper, 20.0), 0) == []  # the defaults are 20


def test_a_claim_that_no_setting_explains_does_not_hide_what_another_tells(paper: Unknowns) -> None:
    (hopeless,) = paper.judged
    both = replace(paper, fitted=[*paper.fitted, hopeless])
    off = {hopeless.id: [float(hopeless.published[0]) * 9]}
    evaluations = [replace(one, numbers={**one.numbers, **off}) for one in made_up(paper, 8.0)]
    found = posterior(both, Emulator(both, both.fitted, evaluations))
    assert found.bits(paper.unknowns[0]) > 0.5
    assert found.spreads[hopeless.id] > 3 * found.spreads[paper.fitted[0].id]


def test_a_run_that_fails_for_another_reason_than_memory_ends_an_inference(paper: Unknowns) -> None:
    claim = paper.fitted[0]
    refused = {
        point.overrides: Outcome(NOT_SIMULATED, reason="there is no key workload.skew")
        for point in evaluate.looked_at(claim.spots_looked_at(), {})
    }
    with pytest.raises(InputError, match=rf"claim {claim.id} cannot be simulated: .*no key workload\.skew"):
        simulated(claim, refused)


def test_an_optimiser_looks_at_whole_numbers_of_what_is_counted(paper: Unknowns) -> None:
    even = [found_at(place(paper.defaults, 0), {"rate-small": [1.0]})]
    found = optimised(Evaluator(paper, 1), even, 2, (0,))
    assert all(one.place.values["answers"] == round(float(one.place.values["answers"])) for one in found)
