"""Inference of unpublished conditions: what a setting changes, what claims leave of a range, and what is kept."""

from __future__ import annotations

import csv
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
from experiments.infer.emulating import LEAST, Emulator, posterior
from experiments.infer.evaluating import (
    Evaluation,
    Evaluator,
    Numbers,
    Place,
    fingerprint,
    place,
    read_table,
)
from experiments.infer.inference import (
    SEEDS,
    agreement,
    best_of,
    decided,
    fittest,
    infer,
    left_by,
    means,
    off_by,
    standard_error,
)
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
    made = made_up(paper, true_load_ms)
    assert abs(dict(fittest(paper, made)[0])["load_ms"] / true_load_ms - 1) < 0.1
    found = posterior(paper, Emulator(paper, paper.fitted, made), {"rate-small": 0.0})
    assert found.assumed == {"rate-small": LEAST}
    load, answers, order = paper.unknowns
    low, high = found.interval(load)
    assert low < true_load_ms < high
    assert high / low < 0.5 * 50 / 5
    assert found.bits(load) > 0.5
    assert max(found.bits(answers), found.bits(order)) < 0.1  # of which the number says nothing
    assert found.weights.sum() == pytest.approx(1)
    inside = sum(
        weight
        for setting, weight in zip(found.settings, found.weights, strict=True)
        if low <= setting["load_ms"] <= high
    )
    assert inside == pytest.approx(0.9, abs=0.05)
    drawn = np.asarray([float(setting["load_ms"]) for setting in found.drawn(10_000)])
    assert np.mean((drawn >= low) & (drawn <= high)) == pytest.approx(inside, abs=0.01)


def test_a_claim_that_no_setting_explains_says_little(paper: Unknowns) -> None:
    """Its error is taken to be what the setting that fits best leaves of it."""
    made = made_up(paper, 8.0)
    emulator = Emulator(paper, paper.fitted, made)
    load = paper.unknowns[0]
    sure, unsure = (posterior(paper, emulator, {"rate-small": left}).bits(load) for left in (0.1, 1.0))
    assert unsure < 0.5 * sure


def test_what_a_setting_leaves_is_of_the_mean_over_seeds(paper: Unknowns) -> None:
    published = float(paper.fitted[0].published[0])
    seeds = [
        found_at(place(paper.defaults, seed), {"rate-small": [published * ratio]})
        for seed, ratio in enumerate((1.0, 4.0))
    ]
    (setting,) = fittest(paper, seeds)
    assert left_by(paper, seeds, setting)["rate-small"] == pytest.approx(math.log(2), abs=0.01)


# Whether settings that fit better also predict better


def test_the_rank_correlation_and_the_settings_that_fit_best(paper: Unknowns) -> None:
    """Errors held back grow with the errors fitted, in all settings but the defaults, which do not count."""
    settings = [{**paper.defaults, "load_ms": 5.0 + i} for i in range(20)]
    published = [float(claim.published[0]) for claim in (*paper.fitted, *paper.judged)]
    found = [
        found_at(
            place(each, 0),
            {"rate-small": [published[0] * (1 + i / 20)], "rate-large": [published[1] * (1.5 + i)]},
        )
        for i, each in enumerate(settings)
    ]
    found.append(found_at(place(paper.defaults, 0), {"rate-small": [0.0], "rate-large": [published[1]]}))
    told = agreement(paper, found, best_of(fittest(paper, found[:-1])))
    assert len(told.fitted) == 20 - (20.0 in [each["load_ms"] for each in settings])
    assert told.correlation == pytest.approx((1.0, 1.0, 1.0))
    assert told.best == pytest.approx([1.5, 2.5], rel=0.01)


def test_nine_of_ten_settings_decide_if_there_are_twenty() -> None:
    def against(better: int, worse: int) -> str:
        return decided(np.array([1.0] * better + [3.0] * worse), 2.0)

    assert [against(20 - worse, worse) for worse in (0, 2, 3, 17, 18, 20)] == [
        "better",
        "better",
        "undecided",
        "undecided",
        "worse",
        "worse",
    ]
    assert against(19, 0) == "undecided"


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
    assert "warning" not in capsys.readouterr().err


def test_a_table_says_which_sources_simulated_it_and_kept_warns_if_they_have_changed(
    inferred: Path, first: tuple[Path, dict[str, bytes]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The warning says so, and --check how far the table is off from what the defaults give now."""
    _, files = first
    now = fingerprint(read(inferred / "paper"))
    assert json.loads(files["json"])["sources"] == now
    assert f"simulated by sources `{now}`" in " ".join(files["md"].decode().split())
    text = files["csv"].decode().replace(now, "earlier")
    (tmp_path / "paper.csv").write_text(text)
    written(tmp_path, "--kept", "--check")
    said = capsys.readouterr()
    assert f"sources earlier simulated the table, and they are {now} now" in said.err
    assert "rate-small: off by a factor of 1.000" in said.out


def test_kept_warns_of_settings_that_were_drawn_by_another_rule(
    inferred: Path,
    first: tuple[Path, dict[str, bytes]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "paper.csv").write_bytes(first[1]["csv"])
    monkeypatch.setattr("experiments.infer.emulating.SEED", 5)
    written(tmp_path, "--kept")
    assert "drawn by another rule" in capsys.readouterr().err


def test_no_number_hangs_on_a_title_or_a_what_if(tmp_path: Path) -> None:
    """A range counts."""
    found = set()
    for number, text in enumerate(
        (UNKNOWNS, UNKNOWNS.replace("title: a load", "title: loads"), UNKNOWNS.replace("[5, 50]", "[5, 51]"))
    ):
        (tmp_path / str(number)).mkdir()
        found.add(fingerprint(read(a_paper(tmp_path / str(number) / "paper", text))))
    assert len(found) == 2
    paper = tmp_path / "2" / "paper"
    (paper / "what_if").mkdir()
    (paper / "what_if" / "sheet.yaml").write_text("files: {}\n")
    assert fingerprint(read(paper)) in found


def test_how_near_settings_come_to_claims_together(
    inferred: Path, first: tuple[Path, dict[str, bytes]], capsys: pytest.CaptureFixture[str]
) -> None:
    """Of the settings with all of them: the farthest number of the farthest claim counts."""
    asked = ["paper", "--out", str(inferred), "--together"]
    assert command.main([*asked, "rate-small,rate-large"]) == 0
    lines = capsys.readouterr().out.splitlines()
    off = [float(line.rpartition(" ")[2]) for line in lines]
    assert [line.partition(":")[0] for line in lines] == ["rate-small", "rate-large", "all of them"]
    assert off[2] >= max(off[:2])
    rows = [*csv.DictReader(first[1]["csv"].decode().splitlines())]
    both = {row["load_ms"] + row["answers"] + row["order"] for row in rows if row["rate-large 0"]}
    assert f"of {len(both)} settings" in lines[2]
    assert command.main([*asked, "rate-smal"]) == 2
    assert "did you mean rate-small" in capsys.readouterr().err


def test_claims_of_ones_own_are_fitted_into_a_folder_of_ones_own(
    inferred: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The page of what unknowns.yaml fits stays."""
    assert command.main(["paper", "--jobs", "1", "--fit", "rate-large"]) == 2
    assert "--fit of claims needs --out" in capsys.readouterr().err


def test_the_board_says_which_part_of_a_claim_was_looked_for(tmp_path: Path) -> None:
    part = BESIDE.replace("id: rate-beside,", "id: rate-beside, part_of: rate-large,")
    judged = UNKNOWNS.replace("judge: [rate-large]", "judge: [rate-beside]")
    found = read(a_paper(tmp_path / "paper", judged + part))
    assert found.parts == {"rate-beside": ["rate-large"]}
    assert [one.id for one in found.own] == ["rate-beside"]
    claim = {"true_under": "load_ms=12", "fitted": False, "part_of": ["rate-large"]}
    (tmp_path / "paper.json").write_text(json.dumps({"claims": {"rate-beside": claim}}))
    assert board.conditions(tmp_path)["rate-large"] == "its part rate-beside: load_ms=12"
    with pytest.raises(InputError, match=r"claim 1: part_of is 'rate-largest'.*rate-large"):
        read(a_paper(tmp_path / "paper", judged + part.replace("rate-large,", "rate-largest,")))


QUESTION = """
questions:
  other:
    fit: [rate-large]
    judge: [rate-small]
    beside: [rate-beside]
    budget: {design: 2, search: 0, draws: 1, rounds: 0}
"""
BESIDE = """
claims:
  - {id: rate-beside, where: a, metric: b, kind: value, published: 1, simulated: figure_1 small fcfs 1 throughput_rps}
"""


def test_another_question_has_a_page_and_a_table_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its table is read again, has what is neither fitted nor judged, and an unknown that is only of another one."""
    unknowns = UNKNOWNS.replace("whole: true", "whole: true\n    only: [other]")
    folder = a_paper(tmp_path / "paper", unknowns + SMALL + QUESTION + BESIDE)
    monkeypatch.setenv("SIMLORA_CACHE_DIR", str(tmp_path / "kept"))
    monkeypatch.setattr(command, "papers", lambda: {"paper": folder})
    monkeypatch.setattr(command, "PAGES", tmp_path / "pages")
    assert [each.name for each in read(folder).unknowns] == ["load_ms", "order"]
    for more in ([], ["--kept"]):
        assert command.main(["paper", "--jobs", "1", "--fit", "other", *more]) == 0
        assert [path.name for path in (tmp_path / "pages").iterdir()] == ["other"]
        with (tmp_path / "pages" / "other" / "paper.csv").open() as file:
            rows = [*csv.DictReader(file)]
        searched = [row for row in rows if int(row["searched"])]
        assert all(row["answers"] and row["rate-large 0"] and row["rate-beside 0"] for row in searched)
        found = json.loads((tmp_path / "pages" / "other" / "paper.json").read_text())
        assert {name: claim["fitted"] for name, claim in found["claims"].items()} == {
            "rate-large": True,
            "rate-small": False,
        }


def test_without_a_paper_the_costs_are_printed(
    first: tuple[Path, dict[str, bytes]], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, files = first
    monkeypatch.setattr(command, "PAGES", folder)
    assert command.main([]) == 0
    runs = json.loads(files["json"])["runs"]
    assert capsys.readouterr().out.splitlines()[-1].startswith(f"all: {runs:,} runs, 0 minutes of one core")


PAGES = {**dict.fromkeys(command.papers(), ""), "ablations/fastlibra": "ablations"}


@pytest.mark.parametrize("name", PAGES)
def test_the_table_beside_each_page_has_what_the_page_says(name: str) -> None:
    unknowns = read(command.papers()[Path(name).name], [PAGES[name]] if PAGES[name] else [])
    found = read_table(unknowns, SEEDS, command.PAGES / f"{name}.csv")
    written = json.loads((command.PAGES / f"{name}.json").read_text())
    assert found.sources == written["sources"]
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


def test_a_claim_comes_out_at_a_setting_if_the_mean_over_seeds_and_an_error_more_do_at_the_setting_as_printed(
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
        of_seeds = np.stack([differences(claim, each) for each in again])
        assert (np.abs(of_seeds.mean(0)) + standard_error(of_seeds)).max() <= HOLDS


def test_a_claim_is_off_by_the_mean_over_seeds_and_its_standard_error(paper: Unknowns) -> None:
    """Of two seeds, one too high and one too low by the same factor, the mean is right by luck."""
    (claim,) = paper.fitted
    published = float(claim.published[0])
    found = [
        found_at(place(paper.defaults, seed), {"rate-small": [published * ratio]})
        for seed, ratio in ((0, 2.0), (1, 0.5))
    ]
    assert [*off_by(claim, found).values()] == [pytest.approx(math.log(2), abs=0.01)]
    assert [*means(claim, found).values()] == [pytest.approx(0, abs=0.01)]
    assert [*off_by(claim, found, [1]).values()] == [pytest.approx(math.log(2), abs=0.01)]
    assert off_by(claim, found, [0, 1, 2]) == {}
