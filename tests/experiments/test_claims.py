"""The scoreboard: when a claim holds, what a row says, and what the command does with bad input."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import yaml

from experiments.claims import __main__ as command
from experiments.claims import formulas, pictures
from experiments.claims.board import markdown
from experiments.claims.claim import read
from experiments.claims.evaluate import Row, evaluate
from experiments.claims.spots import Comparison
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
from experiments.studies.study import read_all
from simlora.core.errors import InputError
from simlora.sweeps.outcome import DOES_NOT_FIT, RAN, Outcome
from simlora.sweeps.outcome import NOT_SIMULATED as WAS_NOT_SIMULATED
from tests.experiments.studied import claims, runs_of

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

FCFS, LCFS = "figure_1 small fcfs throughput_rps", "figure_1 small lcfs throughput_rps"

# Verdicts


@pytest.mark.parametrize(
    ("published", "verdicts"),
    [
        (8.0, {HOLDS: [7.21, 8.0, 8.79], NEAR: [6.01, 8.81], OFF: [5.99, 10.01]}),
        (0, {HOLDS: [0.02], NEAR: [0.09], OFF: [0.2]}),
    ],
)
def test_a_value_holds_within_10_percent_and_is_near_within_25(
    published: float, verdicts: dict[str, list[float]]
) -> None:
    for verdict, values in verdicts.items():
        assert {of_value(published, value) for value in values} == {verdict}


@pytest.mark.parametrize(
    ("sense", "verdicts"),
    [
        ("about", {HOLDS: [2.1, 1.9], NEAR: [2.1, 1.6], OFF: [2.1, 1.0]}),
        ("up_to", {HOLDS: [1.0, 2.1], NEAR: [1.0, 1.6], OFF: [2.1, 3.0]}),
        ("at_most", {HOLDS: [1.0, 2.0], NEAR: [1.0, 2.01], OFF: [1.0, 2.51]}),
        ("more_than", {HOLDS: [2.01, 5.0], NEAR: [2.0, 5.0], OFF: [1.49, 5.0]}),
    ],
)
def test_a_ratio_of_2_is_evaluated_as_what_it_says(sense: str, verdicts: dict[str, list[float]]) -> None:
    for verdict, simulated in verdicts.items():
        assert of_ratios(2.0, simulated, sense) == verdict


def test_a_trend_holds_when_all_comparisons_come_out() -> None:
    assert of_comparisons([True] * 4) == HOLDS
    assert of_comparisons([True] * 3 + [False]) == NEAR
    assert of_comparisons([True] * 2 + [False]) == of_comparisons([False]) == OFF


def test_a_paper_contradicts_itself_unless_we_are_off_from_both_its_numbers() -> None:
    for published, other in ((NEAR, HOLDS), (HOLDS, NEAR), (OFF, HOLDS)):
        assert with_disagreement(published, other) == CONTRADICTS
    assert with_disagreement(OFF, OFF) == OFF


# Rows


def a_claim(**keys: Any) -> str:
    """Return a claim with these keys as it is written."""
    return yaml.safe_dump([{"id": "a-claim", "where": "abstract", "metric": "one over the other", **keys}])


def row_of(folder: Path, text: str, *outcomes: Outcome) -> Row:
    """Evaluate the one claim in `text`; its runs have these outcomes, in the order in which they are named."""
    (claim,) = read(claims(folder, text), read_all(folder))
    runs = dict.fromkeys(point.overrides for point in runs_of(claim))
    return evaluate("paper", claim, dict(zip(runs, outcomes, strict=True)))


def ran(throughput_rps: float | None, attainment: float = 1.0, seconds: float = 1.0) -> Outcome:
    return Outcome(RAN, {"throughput_rps": throughput_rps, "slo": {"attainment": attainment}}, "", seconds)


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


ABSENT = Outcome(WAS_NOT_SIMULATED, reason="no such system")
LARGE = Outcome(DOES_NOT_FIT, reason="too large")
OOM = VALUE.replace("kind: value", "kind: oom").replace("1.0", "OOM")


@pytest.mark.parametrize(
    ("text", "outcome", "simulated", "verdict", "reason"),
    [
        (VALUE, ABSENT, None, NOT_SIMULATED, "fcfs (small) at 1: no such system"),
        (VALUE, ran(None), None, OFF, "fcfs (small) at 1: no request finished"),
        (VALUE, LARGE, "OOM", OFF, "too large"),
        (OOM, LARGE, "OOM", HOLDS, ""),
        (OOM, ran(2.0), 2.0, OFF, "rained"),
    ],
)
def test_a_run_without_a_number_holds_only_where_it_was_to_run_out_of_memory(
    tmp_path: Path, text: str, outcome: Outcome, simulated: Any, verdict: str, reason: str
) -> None:
    row = row_of(tmp_path, text, outcome)
    assert (row.published, row.simulated, row.verdict) == (
        1.0 if text == VALUE else "OOM",
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
    one, other, large = (
        f"figure_1 {which} throughput_rps" for which in ("small fcfs 1", "small fcfs 2", "large fcfs 2")
    )
    pairs = [[other, one], [one, other]]
    text = a_claim(kind="increase", published=[1.8, 50, -25], simulated=large, ratios=pairs)
    row = row_of(tmp_path, text, ran(1.8), ran(1.5), ran(1.0))
    assert row.simulated == pytest.approx([1.8, 50.0, -100 / 3])
    assert row.errors == pytest.approx([0.0, 0.0, 1 / 3])
    assert row.verdict == OFF


def test_a_ratio_divides_the_first_of_a_pair_by_the_second(tmp_path: Path) -> None:
    pairs = [
        [f"figure_1 {panel} {series} 2 throughput_rps" for series in ("fcfs", "lcfs")]
        for panel in ("small", "large")
    ]
    text = a_claim(kind="ratio", sense="at_most", published=4, ratios=pairs)
    outcomes = [ran(6.0), ran(2.0), ran(5.0), ran(1.0)]
    row = row_of(tmp_path, text, *outcomes)
    assert (row.simulated, row.verdict, row.seconds) == ([3.0, 5.0], NEAR, 4.0)
    assert row.errors is None, "a bound is kept or not"
    assert row_of(tmp_path, text.replace("at_most", "up_to"), *outcomes).errors == [pytest.approx(0.25)]


def a_trend(check: str) -> str:
    return a_claim(kind="trend", published="so", checks=[yaml.safe_load(check)])


@pytest.mark.parametrize(
    ("check", "numbers", "passed", "of"),
    [
        (f"above: {{upper: {FCFS}, lower: {LCFS}, x: [2]}}", [1.0, 1.0], 0, 1),
        (f"above: {{upper: {FCFS}, lower: {LCFS}}}", [2.0, 1.0, 1.0, 2.0], 1, 2),
        (f"widens: {{upper: {FCFS}, lower: {LCFS}}}", [2.0, 1.0, 4.0, 1.0], 1, 1),
        (f"widens: {{upper: {FCFS}, lower: {LCFS}}}", [2.0, 1.0, 2.0, 1.0], 0, 1),
        (f"between: {{curve: {FCFS}, least: 0.9, most: 1.0}}", [2.0, 1.9], 1, 1),
        (f"between: {{curve: {FCFS}, least: 0.9, most: 1.0}}", [2.0, 2.1], 0, 1),
        (f"below: {{curve: {FCFS}, limit: 2}}", [1.9, 2.0], 1, 2),
        (f"beyond: {{curve: {FCFS}, limit: 2}}", [2.1, 2.0], 1, 2),
        (f"close: {{curve: {FCFS}, within: 0.1}}", [2.0, 1.9], 1, 1),
        (f"close: {{curve: {FCFS}, within: 0.1}}", [2.0, 1.7], 0, 1),
        (f"better_when_small: {{curve: {FCFS}, small: [1], large: 2}}", [2.0, 1.0], 1, 1),
        (f"better_when_small: {{curve: {FCFS}, small: [1], large: 2}}", [1.0, 2.0], 0, 1),
    ],
)
def test_orders_and_trends_are_comparisons_of_numbers(
    tmp_path: Path, check: str, numbers: list[float], passed: int, of: int
) -> None:
    row = row_of(tmp_path, a_trend(check), *map(ran, numbers))
    assert row.simulated == f"{passed} of {of} comparisons"
    assert passed or row.reason.startswith("Not so: throughput_rps of fcfs")


FORMULA = VALUE.replace("kind: value", "kind: formula").replace(f"simulated: {THROUGHPUT}", "formula: f")


def test_formulas_are_those_of_the_paper(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A row without a study names the command that prints its formula."""
    monkeypatch.setitem(formulas.FORMULAS, "f", lambda: iter([Comparison("3 is 3", True)]))
    row = row_of(tmp_path, FORMULA)
    assert (row.verdict, row.studies) == (HOLDS, [])
    assert row.command == "python -m experiments.claims.formulas f"
    assert f"| `{row.command}` |" in markdown([row], [], "", {})
    monkeypatch.setitem(formulas.FORMULAS, "f", lambda: iter([Comparison("3 is 4", False)]))
    assert row_of(tmp_path, FORMULA).reason == "Because it rained. Not so: 3 is 4."
    assert formulas.main(["f"]) == 0
    assert capsys.readouterr().out == "f\n  NOT SO: 3 is 4\n"
    assert formulas.main(["g"]) == 2


# Reading claims


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("kind: value", "kind: ratio"), "is of kind ratio and has no ratios"),
        (("where: Table 1", "place: Table 1"), "has an unknown key place"),
        (("figure_1 small", "figure_2 small"), "study is 'figure_2'; did you mean figure_1?"),
        (("throughput_rps\n  reason", "throughput\n  reason"), "metric is 'throughput'; did you mean"),
        (("it rained", "{figure_9 small lcfs 2 throughput_rps}"), "reason: study is 'figure_9'"),
        ((VALUE, VALUE.strip("\n") + VALUE), "has the claim a-value twice"),
        ((VALUE, a_trend("abov: {}")), "check is 'abov'; did you mean above?"),
    ],
)
def test_a_mistake_in_a_claim_is_named_with_its_file(
    tmp_path: Path, change: tuple[str, str], said: str
) -> None:
    text = VALUE.replace(*change)
    assert text != VALUE
    with pytest.raises(InputError, match=r"claims\.yaml.* claim (1|a-value)") as caught:
        read(claims(tmp_path, text), read_all(tmp_path))
    assert said in str(caught.value)


# The command


@pytest.fixture
def a_paper(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of experiments with one paper, of whose two claims one holds and the other is off."""
    monkeypatch.setenv("SIMLORA_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("SIMLORA_CLAIMS", str(tmp_path / "claims.csv"))
    monkeypatch.setenv("SIMLORA_MEASURED_DIR", str(tmp_path / "measured"))
    folder = tmp_path / "experiments" / "paper"
    monkeypatch.setattr(command, "papers", lambda: {"paper": folder})
    monkeypatch.setattr(command, "PAGE", tmp_path / "docs" / "claims.md")
    (tmp_path / "docs").mkdir()
    second = VALUE.replace("a-value", "a-trend").replace("published: 1.0", "published: 100")
    claims(folder, VALUE.replace("published: 1.0", "published: 0.95") + second.strip("\n"))
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
    assert (first["id"], second["id"]) == ("a-value", "a-trend")
    assert 0 < first["simulated"] < 2
    assert (second["published"], second["verdict"]) == (100, OFF)
    assert second["simulated"] == first["simulated"], "both are one run"
    assert sum(found["verdicts"].values()) == 2
    assert found["notes"] == [
        "Papers that have claims and no folder here yet: punica (1).",
        "Claims that no claims.yaml has: lost.",
    ]
    assert "Because it rained." in capsys.readouterr().out
    assert "| **off** | `a-trend` Table 1: throughput_rps of fcfs | 100 |" in page.read_text()
    before = out.read_text()
    monkeypatch.setattr("simlora.sweeps.running.simulated", lambda overrides: pytest.fail("simulated"))
    assert command.main(arguments) == 0
    assert out.read_text() == before


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
    assert "(figures/paper/figure_1.png)" in page.read_text()
    first = picture.read_bytes()
    picture.unlink()
    assert command.main(["--jobs", "1"]) == 0
    assert picture.read_bytes() == first
    monkeypatch.setattr(pictures, "draw", lambda *_: pytest.fail("drawn again"))
    assert command.main(["--jobs", "1"]) == 0


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
