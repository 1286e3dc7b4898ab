"""The scoreboard: when a claim holds, what a row says, and what the command does with bad input."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from experiments.claims import __main__ as command
from experiments.claims import formulas, pictures
from experiments.claims.board import markdown, terminal
from experiments.claims.checks import Comparison
from experiments.claims.claim import Claim, read
from experiments.claims.evaluate import UNEXPLAINED, Row, evaluate
from experiments.claims.numbers import error_shown, shown
from experiments.claims.spots import Curve, Limit
from experiments.claims.verdicts import (
    CONTRADICTS,
    HOLDS,
    NEAR,
    NOT_SIMULATED,
    OFF,
    of_comparisons,
    of_ratios,
    of_value,
    with_disagreement,
)
from experiments.studies import running
from experiments.studies.points import Point, point
from experiments.studies.running import Watch
from experiments.studies.study import Study, read_all
from experiments.studies.study import read as read_study
from simlora.core.errors import InputError
from simlora.sweeps.outcome import DOES_NOT_FIT, RAN, Outcome
from simlora.sweeps.outcome import NOT_SIMULATED as WAS_NOT_SIMULATED
from tests.experiments.studied import a_study, claims, runs_of

THROUGHPUT = "figure_1 small fcfs 1 throughput_rps"
VALUE = f"""
- id: a-value
  where: Table 1
  metric: throughput_rps of fcfs
  kind: value
  published: 1.0
  simulated: {THROUGHPUT}
  reason: Because it rained.
"""

# Verdicts


@pytest.mark.parametrize(
    ("published", "simulated", "verdict"),
    [
        (8.0, 8.0, HOLDS),
        (8.0, 8.79, HOLDS),
        (8.0, 7.21, HOLDS),
        (8.0, 8.81, NEAR),
        (8.0, 6.01, NEAR),
        (8.0, 10.01, OFF),
        (8.0, 5.99, OFF),
        (0, 0.02, HOLDS),
        (0, 0.09, NEAR),
        (0, 0.2, OFF),
    ],
)
def test_a_value_holds_within_10_percent_and_is_near_within_25(
    published: float, simulated: float, verdict: str
) -> None:
    assert of_value(published, simulated) == verdict


@pytest.mark.parametrize(
    ("sense", "simulated", "verdict"),
    [
        ("about", [2.1, 1.9], HOLDS),
        ("about", [2.1, 1.6], NEAR),
        ("about", [2.1, 1.0], OFF),
        ("up_to", [1.0, 2.1], HOLDS),
        ("up_to", [1.0, 1.6], NEAR),
        ("up_to", [2.1, 3.0], OFF),
        ("at_most", [1.0, 2.0], HOLDS),
        ("at_most", [1.0, 2.01], NEAR),
        ("at_most", [1.0, 2.51], OFF),
        ("more_than", [2.01, 5.0], HOLDS),
        ("more_than", [2.0, 5.0], NEAR),
        ("more_than", [1.49, 5.0], OFF),
    ],
)
def test_a_ratio_is_evaluated_as_what_it_says(sense: str, simulated: list[float], verdict: str) -> None:
    assert of_ratios(2.0, simulated, sense) == verdict


@pytest.mark.parametrize(
    ("passed", "verdict"), [((4, 4), HOLDS), ((3, 4), NEAR), ((2, 3), OFF), ((0, 1), OFF)]
)
def test_a_trend_holds_when_all_comparisons_come_out(passed: tuple[int, int], verdict: str) -> None:
    assert of_comparisons([index < passed[0] for index in range(passed[1])]) == verdict


@pytest.mark.parametrize(
    ("against_published", "against_other", "verdict"),
    [(NEAR, HOLDS, CONTRADICTS), (HOLDS, NEAR, CONTRADICTS), (OFF, HOLDS, CONTRADICTS), (OFF, OFF, OFF)],
)
def test_a_paper_contradicts_itself_unless_we_are_off_from_both_its_numbers(
    against_published: str, against_other: str, verdict: str
) -> None:
    assert with_disagreement(against_published, against_other) == verdict


# Rows


def row_of(folder: Path, text: str, *outcomes: Outcome) -> Row:
    """Evaluate the one claim in `text`; its runs have these outcomes, in the order in which they are named."""
    (claim,) = read(claims(folder, text), read_all(folder))
    runs = dict.fromkeys(point.overrides for point in runs_of(claim))
    return evaluate("paper", claim, dict(zip(runs, outcomes, strict=True)))


def ran(throughput_rps: float | None, attainment: float = 1.0, seconds: float = 1.0) -> Outcome:
    return Outcome(RAN, {"throughput_rps": throughput_rps, "slo": {"attainment": attainment}}, "", seconds)


def test_a_row_has_both_numbers_the_verdict_and_the_seconds(tmp_path: Path) -> None:
    row = row_of(tmp_path, VALUE, ran(1.05, seconds=2.5))
    assert row.as_dict() == {
        "id": "a-value",
        "paper": "paper",
        "where": "Table 1",
        "metric": "throughput_rps of fcfs",
        "kind": "value",
        "published": 1.0,
        "simulated": 1.05,
        "errors": [pytest.approx(0.05)],
        "verdict": HOLDS,
        "reason": "",
        "studies": ["figure_1"],
        "command": "",
        "runs": 1,
        "fitted": 0,
        "chosen": "",
        "seconds": 2.5,
    }


def test_the_reason_is_shown_where_a_claim_does_not_hold_and_said_to_lack_where_it_has_none(
    tmp_path: Path,
) -> None:
    row = row_of(tmp_path, VALUE, ran(2.0))
    assert (row.verdict, row.reason, row.errors) == (OFF, "Because it rained.", [1.0])
    assert row_of(tmp_path, VALUE, ran(1.05)).reason == ""
    unexplained = row_of(tmp_path, VALUE.replace("  reason: Because it rained.\n", ""), ran(2.0))
    assert unexplained.reason == UNEXPLAINED


def test_a_reason_has_the_numbers_of_the_runs_that_it_names(tmp_path: Path) -> None:
    text = VALUE.replace("Because it rained.", '"At 2/s it is {figure_1 small lcfs 2 throughput_rps}."')
    (claim,) = read(claims(tmp_path, text), read_all(tmp_path))
    (spot,) = claim.evidence.values()
    outcomes = {point.overrides: ran(2.0) for point in runs_of(claim)}
    assert spot.point.overrides not in outcomes, "it is no run of the claim itself"
    row = evaluate("paper", claim, outcomes | {spot.point.overrides: ran(1.2345)})
    assert (row.reason, row.runs, row.seconds) == ("At 2/s it is 1.23.", 1, 1.0)
    row = evaluate("paper", claim, outcomes | {spot.point.overrides: Outcome(DOES_NOT_FIT)})
    assert row.reason == "At 2/s it is -."


def test_a_number_in_a_reason_must_be_one_of_a_study(tmp_path: Path) -> None:
    path = claims(tmp_path, VALUE.replace("it rained", "{figure_9 small lcfs 2 throughput_rps}"))
    with pytest.raises(InputError, match=r"\(a-value\): reason: study is 'figure_9'"):
        read(path, read_all(tmp_path))


def test_a_row_says_how_many_of_its_runs_were_fitted(tmp_path: Path) -> None:
    key = (
        "slora a10g S1 synthetic kv_token_budget= num_adapters=5 alpha=1 req_rate=1 cv=1 duration_s=10 "
        "prompt_lo=8 prompt_hi=512 output_lo=8 output_hi=64"
    )
    (claim,) = read(claims(tmp_path, VALUE), read_all(tmp_path))
    overrides = runs_of(claim)[0].overrides

    def fitted(provenance: dict[str, Any]) -> int:
        outcome = Outcome(RAN, {"throughput_rps": 1.0, "calibration": {"provenance": provenance}})
        return evaluate("paper", claim, {overrides: outcome}).fitted

    assert fitted({"fitted_rows": [key]}) == 1
    assert fitted({"additions": {"slora_bmm": {"fitted_rows": [key]}}}) == 1
    assert fitted({"fitted_rows": [key.replace("req_rate=1", "req_rate=2")]}) == 0
    assert fitted({"fitted_rows": [key.replace("slora ", "slora_bmm ", 1)]}) == 0


def test_several_values_are_judged_by_the_worst(tmp_path: Path) -> None:
    text = VALUE.replace("published: 1.0", "published: [1.0, 0]").replace(
        THROUGHPUT, f"[{THROUGHPUT}, figure_1 small fcfs 1 slo.attainment]"
    )
    row = row_of(tmp_path, text, ran(1.0, attainment=0.05))
    assert (row.simulated, row.verdict) == ([1.0, 0.05], NEAR)


AT_ONE = "fcfs (small) at 1: "


@pytest.mark.parametrize(
    ("kind", "outcome", "simulated", "verdict", "reason"),
    [
        (
            "value",
            Outcome(WAS_NOT_SIMULATED, reason="no such system"),
            None,
            NOT_SIMULATED,
            AT_ONE + "no such",
        ),
        ("value", ran(None), None, OFF, AT_ONE + "no request finished"),
        ("value", Outcome(DOES_NOT_FIT, reason="too large"), "OOM", OFF, "too large"),
        ("oom", Outcome(DOES_NOT_FIT, reason="too large"), "OOM", HOLDS, ""),
        ("oom", ran(2.0), 2.0, OFF, "rained"),
        ("oom", Outcome(WAS_NOT_SIMULATED, reason="no such system"), None, NOT_SIMULATED, "no such system"),
    ],
)
def test_a_run_without_a_number_holds_only_where_it_was_to_run_out_of_memory(
    tmp_path: Path, kind: str, outcome: Outcome, simulated: Any, verdict: str, reason: str
) -> None:
    text = VALUE if kind == "value" else VALUE.replace("kind: value", "kind: oom").replace("1.0", "OOM")
    row = row_of(tmp_path, text, outcome)
    assert (row.published, row.simulated, row.verdict) == (
        1.0 if kind == "value" else "OOM",
        simulated,
        verdict,
    )
    assert reason in row.reason


def test_a_second_published_number_makes_a_contradiction_of_both(tmp_path: Path) -> None:
    text = VALUE + "  disagreement: {value: 1.3, source: the published run behind it}\n"
    row = row_of(tmp_path, text, ran(1.29))
    assert row.verdict == CONTRADICTS
    assert "Table 1 says 1, the published run behind it says 1.3." in row.reason
    assert row_of(tmp_path, text, ran(3.0)).verdict == OFF
    agreeing = text.replace("value: 1.3", "value: 1.02")
    assert row_of(tmp_path, agreeing, ran(1.01)).verdict == HOLDS


def test_an_increase_is_in_per_cent_behind_the_values_that_belong_to_it(tmp_path: Path) -> None:
    text = """
    - id: an-increase
      where: abstract
      metric: throughput, and by how much more
      kind: increase
      published: [1.8, 50, -25]
      simulated: figure_1 large fcfs 2 throughput_rps
      ratios:
        - [figure_1 small fcfs 2 throughput_rps, figure_1 small fcfs 1 throughput_rps]
        - [figure_1 small fcfs 1 throughput_rps, figure_1 small fcfs 2 throughput_rps]
    """
    row = row_of(tmp_path, text, ran(1.8), ran(1.5), ran(1.0))
    assert row.simulated == pytest.approx([1.8, 50.0, -100 / 3])
    assert row.errors == pytest.approx([0.0, 0.0, 1 / 3])
    assert row.verdict == OFF


def test_what_cannot_be_simulated_says_why(tmp_path: Path) -> None:
    text = """
    - id: absent
      where: abstract
      metric: what nobody has
      kind: absent
      published: 1.7
      reason: Nobody has one.
    """
    row = row_of(tmp_path, text)
    assert (row.verdict, row.reason, row.simulated) == (NOT_SIMULATED, "Nobody has one.", None)


def test_a_ratio_divides_the_first_of_a_pair_by_the_second(tmp_path: Path) -> None:
    text = """
    - id: a-ratio
      where: abstract
      metric: fcfs / lcfs
      kind: ratio
      sense: at_most
      published: 4
      ratios:
        - [figure_1 small fcfs 2 throughput_rps, figure_1 small lcfs 2 throughput_rps]
        - [figure_1 large fcfs 2 throughput_rps, figure_1 large lcfs 2 throughput_rps]
    """
    row = row_of(tmp_path, text, ran(6.0), ran(2.0), ran(5.0), ran(1.0))
    assert (row.simulated, row.verdict, row.seconds) == ([3.0, 5.0], NEAR, 4.0)
    assert row.errors is None, "a bound is kept or not"
    exact = row_of(tmp_path, text.replace("at_most", "up_to"), ran(6.0), ran(2.0), ran(5.0), ran(1.0))
    assert exact.errors == [pytest.approx(0.25)]


CHECK = """
- id: a-trend
  where: Figure 1
  metric: it goes as it goes
  kind: trend
  published: so
  checks:
    - {check}
"""
FCFS, LCFS = "figure_1 small fcfs throughput_rps", "figure_1 small lcfs throughput_rps"


@pytest.mark.parametrize(
    ("check", "numbers", "simulated"),
    [
        (f"above: {{upper: {FCFS}, lower: {LCFS}, x: [2]}}", [2.0, 1.0], "1 of 1 comparisons"),
        (f"above: {{upper: {FCFS}, lower: {LCFS}, x: [2]}}", [1.0, 1.0], "0 of 1 comparisons"),
        (f"above: {{upper: {FCFS}, lower: {LCFS}}}", [2.0, 1.0, 1.0, 2.0], "1 of 2 comparisons"),
        (f"widens: {{upper: {FCFS}, lower: {LCFS}}}", [2.0, 1.0, 4.0, 1.0], "1 of 1 comparisons"),
        (f"widens: {{upper: {FCFS}, lower: {LCFS}}}", [2.0, 1.0, 2.0, 1.0], "0 of 1 comparisons"),
        (f"between: {{curve: {FCFS}, least: 0.9, most: 1.0}}", [2.0, 1.9], "1 of 1 comparisons"),
        (f"between: {{curve: {FCFS}, least: 0.9, most: 1.0}}", [2.0, 2.1], "0 of 1 comparisons"),
        (f"below: {{curve: {FCFS}, limit: 2}}", [1.9, 2.0], "1 of 2 comparisons"),
        (f"beyond: {{curve: {FCFS}, limit: 2}}", [2.1, 2.0], "1 of 2 comparisons"),
        (f"close: {{curve: {FCFS}, within: 0.1}}", [2.0, 1.9], "1 of 1 comparisons"),
        (f"close: {{curve: {FCFS}, within: 0.1}}", [2.0, 1.7], "0 of 1 comparisons"),
        (f"better_when_small: {{curve: {FCFS}, small: [1], large: 2}}", [2.0, 1.0], "1 of 1 comparisons"),
        (f"better_when_small: {{curve: {FCFS}, small: [1], large: 2}}", [1.0, 2.0], "0 of 1 comparisons"),
    ],
)
def test_orders_and_trends_are_comparisons_of_numbers(
    tmp_path: Path, check: str, numbers: list[float], simulated: str
) -> None:
    row = row_of(tmp_path, CHECK.format(check=check), *map(ran, numbers))
    assert row.simulated == simulated
    failed = simulated.startswith("0")
    assert row.reason.startswith("Not so: throughput_rps of fcfs") if failed else True


def test_formulas_are_those_of_the_paper(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = VALUE.replace("kind: value", "kind: formula").replace(f"simulated: {THROUGHPUT}", "formula: f")
    monkeypatch.setitem(formulas.FORMULAS, "f", lambda: iter([Comparison("3 is 3", True)]))
    assert row_of(tmp_path, text).verdict == HOLDS
    monkeypatch.setitem(formulas.FORMULAS, "f", lambda: iter([Comparison("3 is 4", False)]))
    assert row_of(tmp_path, text).reason == "Because it rained. Not so: 3 is 4."

    def missing() -> Any:
        raise ImportError

    monkeypatch.setitem(formulas.FORMULAS, "f", missing)
    assert row_of(tmp_path, text).verdict == NOT_SIMULATED


# Reading claims


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("kind: value", "kind: guess"), "kind is 'guess'; "),
        (("kind: value", "kind: ratio"), "is of kind ratio and has no ratios"),
        (("where: Table 1", "place: Table 1"), "has an unknown key place"),
        (("figure_1 small", "figure_2 small"), "study is 'figure_2'; did you mean figure_1?"),
        (("small fcfs", "tiny fcfs"), "panel is 'tiny'; "),
        (("small fcfs", "small fifo"), "series is 'fifo'; did you mean fcfs"),
        (("fcfs 1", "fcfs 3"), "x is '3'; "),
        (("throughput_rps\n  reason", "throughput\n  reason"), "metric is 'throughput'; did you mean"),
        ((THROUGHPUT, "figure_1"), "must be a study, a panel, a series, a value of x and a metric"),
    ],
)
def test_a_mistake_in_a_claim_names_the_claim(tmp_path: Path, change: tuple[str, str], said: str) -> None:
    text = VALUE.replace(*change)
    assert text != VALUE
    with pytest.raises(InputError, match=r"claims\.yaml: claim 1") as caught:
        read(claims(tmp_path, text), read_all(tmp_path))
    assert said in str(caught.value)


def test_a_claim_must_not_be_there_twice(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="has the claim a-value twice"):
        read(claims(tmp_path, VALUE.strip("\n") + VALUE), read_all(tmp_path))


@pytest.mark.parametrize(
    ("check", "said"),
    [
        ("abov: {}", "check is 'abov'; did you mean above?"),
        ("close: {curve: figure_1 small fcfs throughput_rps}", "close has no within"),
        ("close: {curve: figure_1 small, within: 1}", "must be a study, a panel, a series and a metric"),
        ("close", "a check is one name with its arguments"),
    ],
)
def test_a_mistake_in_a_check_is_named(tmp_path: Path, check: str, said: str) -> None:
    with pytest.raises(InputError) as caught:
        read(claims(tmp_path, CHECK.format(check=check)), read_all(tmp_path))
    assert said in str(caught.value)


# The command


@pytest.fixture
def a_paper(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of experiments with one paper, of which one claim is simulated and one cannot be."""
    monkeypatch.setenv("SIMLORA_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("SIMLORA_CLAIMS", str(tmp_path / "claims.csv"))
    folder = tmp_path / "experiments"
    monkeypatch.setenv("SIMLORA_MEASURED_DIR", str(tmp_path / "measured"))
    monkeypatch.setattr(command, "papers", lambda: {"paper": folder / "paper"})
    monkeypatch.setattr(command, "PAGE", tmp_path / "docs" / "claims.md")
    (tmp_path / "docs").mkdir()
    second = VALUE.replace("a-value", "a-trend").replace("published: 1.0", "published: 100")
    claims(folder / "paper", VALUE.replace("published: 1.0", "published: 0.95") + second.strip("\n"))
    return tmp_path


def test_the_board_is_made_from_simulations_which_are_kept(
    a_paper: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    out, page = a_paper / "board.json", a_paper / "claims.md"
    (a_paper / "claims.csv").write_text("id,paper\na-value,paper\nlost,paper\nother,punica\n")
    arguments = ["--json", str(out), "--markdown", str(page), "--jobs", "1"]
    assert command.main(arguments) == 0
    found = json.loads(out.read_text())
    first, second = found["claims"]
    assert set(first) >= {"id", "published", "simulated", "verdict", "reason", "seconds"}
    assert first["id"] == "a-value"
    assert 0 < first["simulated"] < 2
    assert (second["published"], second["verdict"]) == (100, OFF)
    assert second["simulated"] == first["simulated"], "both are one run"
    assert sum(found["verdicts"].values()) == 2
    assert found["notes"] == [
        "Papers that have claims and no folder here yet: punica (1).",
        "Claims that no claims.yaml has: lost.",
    ]
    printed = capsys.readouterr().out
    assert "Because it rained." in printed
    assert "paper: 1 runs, which took " in printed
    assert f"wrote {page} and 1 figures in {a_paper / 'figures'}" in printed
    assert "| **off** | `a-trend` Table 1: throughput_rps of fcfs | 100 |" in page.read_text()
    before = out.read_text()
    monkeypatch.setattr("simlora.sweeps.running.simulated", lambda overrides: pytest.fail("simulated"))
    assert command.main(arguments) == 0
    assert out.read_text() == before


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--paper", "papr"], "error: --paper is 'papr'; did you mean paper?"),
        (
            ["--json", "{folder}/nowhere/board.json"],
            "board.json cannot be written: No such file or directory",
        ),
    ],
)
def test_bad_input_is_one_sentence_and_status_2(
    a_paper: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    given = [argument.format(folder=a_paper) for argument in arguments]
    assert command.main([*given, "--jobs", "1"]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1


def test_an_interrupted_board_says_how_to_go_on(
    a_paper: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(overrides: tuple[str, ...]) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("simlora.sweeps.running.simulated", interrupted)
    assert command.main(["--jobs", "1"]) == 130
    assert "interrupted; the runs that were finished are kept" in capsys.readouterr().err


# What is written, and what it shows


def test_the_board_of_all_papers_is_the_page_of_the_project_and_a_paper_s_none(
    a_paper: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its pictures have the bytes of their data, and are drawn once."""
    page = a_paper / "docs" / "claims.md"
    picture = a_paper / "docs" / "figures" / "paper" / "figure_1.png"
    assert command.main(["--paper", "paper", "--jobs", "1"]) == 0
    assert not page.exists()
    assert command.main(["--jobs", "1"]) == 0
    assert "Written by `python -m experiments.claims`," in page.read_text()
    assert "(figures/paper/figure_1.png)" in page.read_text()
    first = picture.read_bytes()
    with Image.open(picture) as image:
        assert set(image.info) - {"dpi", "transparency", "gamma"} == {pictures.DATA}
    picture.unlink()
    assert command.main(["--jobs", "1"]) == 0
    assert picture.read_bytes() == first
    monkeypatch.setattr(pictures, "draw", lambda *_: pytest.fail("drawn again"))
    assert command.main(["--jobs", "1"]) == 0


def watch_of(study: Study, *keys: tuple[str, str, Any]) -> Watch:
    """Runs of these panels, series and values of x."""
    here = [point(study, study.panel(p), study.series_named(s), x) for p, s, x in keys]
    return Watch(
        points={(one.study, one.overrides): one for one in here},
        outcomes={one.overrides: ran(1.0) for one in here},
    )


def test_a_picture_has_the_points_that_were_run_and_those_that_a_search_made_along_x(tmp_path: Path) -> None:
    study = read_study(a_study(tmp_path, rules=None))
    watch = watch_of(study, ("small", "fcfs", 1), ("small", "fcfs", 1.5), ("large", "fcfs", 2))
    found = list(pictures._found(study, watch, ()))
    assert [one.key[1:] for one, _ in found] == [
        ("small", "fcfs", 1),
        ("small", "fcfs", 1.5),
        ("large", "fcfs", 2),
    ]
    only = pictures._only(study, [one for one, _ in found])
    assert [(panel.name, panel.x) for panel in only.panels] == [("small", [1, 1.5])], "one x is no curve"
    assert [series.name for series in only.series] == ["fcfs"]


def test_a_claim_of_no_study_names_the_command_that_prints_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = VALUE.replace("kind: value", "kind: formula").replace(f"simulated: {THROUGHPUT}", "formula: f")
    monkeypatch.setitem(formulas.FORMULAS, "f", lambda: iter([Comparison("3 is 3", True)]))
    row = row_of(tmp_path, text)
    assert (row.studies, row.command) == ([], "python -m experiments.claims.formulas f")
    assert "| `python -m experiments.claims.formulas f` |" in markdown([row], [], "", {})


def test_formulas_are_printed(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(formulas.FORMULAS, "f", lambda: iter([Comparison("3 is 4", False)]))
    assert formulas.main(["f"]) == 0
    assert capsys.readouterr().out == "f\n  NOT SO: 3 is 4\n"
    assert formulas.main(["g"]) == 2


def test_every_computed_number_has_a_figure_or_a_command() -> None:
    computed = {
        claim.computed
        for folder in command.papers().values()
        for claim in read(folder / "claims.yaml", read_all(folder))
    } - {""}
    assert computed <= formulas.NUMBERS.keys()
    assert formulas.COMMANDS.keys() <= computed
    for module in formulas.COMMANDS.values():
        assert find_spec(module), module


# Which runs a claim needs


def test_what_computes_a_number_tells_its_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    study = read_study(a_study(tmp_path, rules=None))
    one = point(study, study.panel("small"), study.series_named("fcfs"), 1)
    monkeypatch.setattr(
        running, "_simulated", lambda wanted, *_: {overrides: ran(1.0) for overrides in wanted}
    )
    monkeypatch.setitem(
        formulas.NUMBERS, "n", lambda: [running.run_all([one])[one.overrides].figure("throughput_rps")]
    )
    row = row_of(tmp_path, VALUE.replace(f"simulated: {THROUGHPUT}", "computed: n"))
    assert (row.simulated, row.studies, row.runs, row.seconds) == (1.0, ["figure_1"], 1, 1.0)


def test_within_a_watch_a_run_is_looked_up_once_and_jobs_are_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study, looked_up = read_study(a_study(tmp_path, rules=None)), []
    one = point(study, study.panel("small"), study.series_named("fcfs"), 1)

    def simulated(wanted: Any, jobs: int, shown: Any) -> Any:
        looked_up.append((len(wanted), jobs))
        return {overrides: ran(1.0) for overrides in wanted}

    monkeypatch.setattr(running, "_simulated", simulated)
    with running.watched(jobs=1) as outer, running.watched() as inner:
        assert running.run_all([one]) == running.run_all([one])
    assert looked_up == [(1, 1), (0, 1)]
    assert list(outer.outcomes) == list(inner.outcomes) == [one.overrides]
    running.run_all([one])
    assert looked_up[-1] == (1, -1)


def test_a_limit_looks_at_half_of_its_points_or_fewer(tmp_path: Path) -> None:
    x = {"key": "workload.rate_rps", "label": "", "values": list(range(1, 17))}
    panels = {"small": {"title": ""}}
    study = read_study(a_study(tmp_path, x=x, panels=panels, rules=None, printed=None))
    asked: list[Any] = []

    def figures(point: Point, metric: str) -> float:
        asked.append(point.x)
        return 2.0 * point.x

    limit = Limit(Curve(study, "small", "fcfs", "throughput_rps"), 11.0)
    assert limit.number(figures) == 5.5
    assert asked == [8, 4, 6, 5]
    assert [one.x for one in limit.looked_at(figures)] == [8, 4, 6, 5]


def test_reasons_are_simulated_only_where_a_claim_does_not_hold(
    a_paper: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def simulated(wanted: Any, *_: Any) -> Any:
        asked.extend(wanted)
        return {overrides: ran(1.0) for overrides in wanted}

    monkeypatch.setattr(running, "_simulated", simulated)
    folder = a_paper / "experiments" / "paper"
    text = VALUE.replace("rained", "rained, {figure_1 large fcfs 2 throughput_rps}")
    for published, runs in (("1.0", 1), ("9.0", 2)):
        claims(folder, text.replace("published: 1.0", f"published: {published}"))
        asked.clear()
        assert len(command.judge("paper", folder)) == 1
        assert len(asked) == runs


def test_papers_are_the_folders_that_have_claims(tmp_path: Path) -> None:
    for name in ("b", "a"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "claims.yaml").write_text("")
    (tmp_path / "none").mkdir()
    assert list(command.papers(tmp_path)) == ["a", "b"]


@pytest.mark.parametrize(
    ("value", "cell"),
    [
        (None, "-"),
        (0.123456, "0.123"),
        (1609.5, "1610"),
        ([0.26, 1021.86, 0.0], "0.26; 1022; 0"),
        ("OOM", "OOM"),
    ],
)
def test_numbers_are_shown_with_three_digits(value: Any, cell: str) -> None:
    assert shown(value) == cell


def test_the_page_and_the_terminal_show_every_claim(tmp_path: Path) -> None:
    rows = [row_of(tmp_path, VALUE, outcome) for outcome in (ran(1.0), ran(2.0))]
    text = terminal(rows)
    assert "2 claims: 1 holds, 1 off." in text
    assert text.index("Because it rained.") < text.index("holds"), "the worst come first"
    page = markdown(rows, ["A note."], "python -m experiments.claims", {})
    assert page.count("`a-value`") == 2
    assert "A note." in page
    off, holds = (page.index(f"| {verdict} | `a-value`") for verdict in ("**off**", "holds"))
    assert off < holds, "the worst come first"
    link = "[figure_1](figures/paper/figure_1.png) ([YAML](../experiments/paper/figure_1.yaml))"
    assert f"| 1 | 2 | +100.0 % |  | not looked for | {link} | Because it rained. |" in page
    assert "Written by `python -m experiments.claims`, with its figures" in page


@pytest.mark.parametrize(
    ("published", "errors", "cell"),
    [
        (1.0, [0.1234], "+12.3 %"),
        ([1.0, 0], [-0.02, 0.0017], "-2.0 %; +0.002"),
        (30, [0.06], "+6.0 %"),
        ("OOM", None, ""),
    ],
)
def test_errors_are_relative_and_absolute_where_0_was_published(
    published: Any, errors: list[float] | None, cell: str
) -> None:
    assert error_shown(published, errors) == cell


def test_a_claim_names_the_runs_that_it_needs(tmp_path: Path) -> None:
    (claim,) = read(claims(tmp_path, VALUE), read_all(tmp_path))
    assert isinstance(claim, Claim)
    assert [point.key for point in runs_of(claim)] == [("figure_1", "small", "fcfs", 1)]
