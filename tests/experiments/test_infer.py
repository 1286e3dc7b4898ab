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

from experiments.claims import __main__ as board
from experiments.infer import __main__ as command
from experiments.infer.conditions import HOLDS, TARGET, t, under
from experiments.infer.emulating import Emulator, posterior
from experiments.infer.evaluating import (
    Evaluation,
    Evaluator,
    Numbers,
    Place,
    place,
    read_table,
)
from experiments.infer.inference import SEEDS, infer, off_by
from experiments.infer.saying import NOT_FOUND, true_under
from experiments.infer.searching import design, differences
from experiments.infer.unknowns import Unknowns, read
from experiments.studies.points import Point, points
from experiments.studies.study import read_all
from simlora.core.errors import InputError
from simlora.latency import calibration as calibrations
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


# How unknowns are written


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
        ("series: [fcfs]", "study: [figure_2]", r"where.study is 'figure_2'"),
    ],
)
def test_a_mistake_is_named(tmp_path: Path, wrong: str, right: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        read(a_paper(tmp_path, UNKNOWNS.replace(wrong, right)))


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


# The command


SMALL = "budget: {design: 4, judged: 2, search: 1, draws: 1, rounds: 1, seeds: 2}"


def written(folder: Path, *more: str) -> dict[str, bytes]:
    """Run the command; return its files."""
    assert command.main(["paper", "--jobs", "1", "--out", str(folder), *more]) == 0
    return {name: (folder / f"paper.{name}").read_bytes() for name in ("md", "json", "csv", "png")}


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, bytes]]:
    """Return the folder of an inference, with its paper and what was kept, and the files that it wrote."""
    folder = tmp_path_factory.mktemp("inferred")
    a_paper(folder / "paper", UNKNOWNS + SMALL)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SIMLORA_CACHE_DIR", str(folder / "kept"))
        patch.setattr(command, "papers", lambda: {"paper": folder / "paper"})
        return folder, written(folder)


@pytest.fixture
def inferred(first: tuple[Path, dict[str, bytes]], monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return that folder, in the surroundings of its inference."""
    folder, _ = first
    monkeypatch.setenv("SIMLORA_CACHE_DIR", str(folder / "kept"))
    monkeypatch.setattr(command, "papers", lambda: {"paper": folder / "paper"})
    return folder


def test_an_inference_is_written_again_from_what_is_kept_or_from_its_table_alone(
    inferred: Path,
    first: tuple[Path, dict[str, bytes]],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    _, files = first
    found = json.loads(files["json"])["claims"]
    assert set(found) == {"rate-small", "rate-large"}
    conditions = board.conditions(inferred)
    assert conditions["rate-small"].endswith("(fitted)")
    assert conditions["rate-large"] == found["rate-large"]["true_under"]
    monkeypatch.setattr("experiments.infer.evaluating._simulated", lambda *_: pytest.fail("simulated again"))
    assert written(inferred) == files
    monkeypatch.setenv("SIMLORA_CACHE_DIR", str(inferred / "nothing"))
    assert written(inferred, "--kept") == files
    assert (
        command.main(["paper", "--jobs", "1", "--out", str(inferred), "--kept", "--fit", "rate-small"]) == 2
    )
    assert "--kept writes the page of the table as it is" in capsys.readouterr().err


@pytest.mark.parametrize("name", sorted(command.papers()))
def test_the_table_beside_each_page_has_what_the_page_says(name: str) -> None:
    unknowns = read(command.papers()[name])
    found = read_table(unknowns, SEEDS, command.PAGES / f"{name}.csv")
    written = json.loads((command.PAGES / f"{name}.json").read_text())
    assert len({one.place.setting for one in found.all}) == written["settings"]
    assert sum(sum(one.runs.values()) for one in found.all) == written["runs"]
    assert len(found.left) == len(SEEDS) * (1 + unknowns.budget.draws)


def test_a_setting_is_printed_with_its_claims(
    paper: Unknowns, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command, "papers", lambda: {"paper": paper.folder})
    assert command.main(["paper", "--at", "load_ms=12", "--jobs", "1"]) == 0
    assert {"rate-small: 0.9", "rate-large: 1.5"} <= set(
        re.findall(r"rate-\w+: [\d.]+", capsys.readouterr().out)
    )


def test_a_claim_comes_out_at_a_setting_if_the_mean_over_seeds_does_at_the_setting_as_printed(
    inferred: Path,
) -> None:
    paper = read(inferred / "paper")
    found = infer(Evaluator(paper, 1), lambda _: None)
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
