"""What is counted of a plain S-LoRA request, and that it stays small."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from experiments.speed import counts
from experiments.speed.counting import Counting
from experiments.speed.decisions import Condition, Loop
from experiments.speed.figures import Figures
from tests.builds import FRAMES

CALLS_AT_MOST = 152.0
"""Calls a plain S-LoRA request, of which REQUESTS are simulated: 151.0 are counted."""
CALLS_BETWEEN_FILES_AT_MOST = 114.0
BRANCH_LINES_AT_MOST = 243.0
ABSENT_BELOW = 15.0
"""Branch lines a request that ask for a mechanism which plain S-LoRA has not got."""
REQUESTS = 1000

DECIDES = """
def odd(numbers, scale=None):
    found = 0
    for number in numbers:
        if number % 2 and not (number > 100 or scale is not None):
            found += 1
    for number in ():
        found += number
    return [each for each in numbers if 0 < each < 3] if numbers else []
"""


pytestmark = FRAMES


@pytest.fixture(scope="module")
def plain() -> Figures:
    return counts.count(REQUESTS)


def test_a_plain_request_stays_cheap(plain: Figures) -> None:
    assert plain.calls <= CALLS_AT_MOST
    assert plain.between_files <= CALLS_BETWEEN_FILES_AT_MOST
    assert plain.branch_lines <= BRANCH_LINES_AT_MOST
    assert sum(plain.absent.values()) < ABSENT_BELOW


def test_counting_twice_finds_the_same() -> None:
    assert counts.count(20) == counts.count(20)


def test_the_table_has_all_figures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert counts.main(["--requests", "20", "--lines", "--json", str(tmp_path / "counts.json")]) == 0
    assert "\nbranch lines" in capsys.readouterr().out
    written = json.loads((tmp_path / "counts.json").read_text())
    assert written["requests"] == 20
    assert written["branch_lines"] == pytest.approx(sum(line["executions"] for line in written["lines"]))


def test_decisions_are_counted_one_by_one(tmp_path: Path) -> None:
    file = tmp_path / "odd.py"
    file.write_text(DECIDES)
    names: dict = {}
    exec(compile(DECIDES, file, "exec"), names)  # noqa: S102
    before = sys.gettrace()
    counted = Counting([tmp_path], [tmp_path]).count(lambda: names["odd"]([1, 2, 3, 101]))
    assert sys.gettrace() is before
    found = {
        asks.text: (times, counted.outcomes[file, asks]) for (file, asks), times in counted.executions.items()
    }
    assert found == {
        "for number in numbers": (1, {"ran", "empty"}),
        "number % 2": (4, {"true", "false"}),
        "number > 100": (3, {"true", "false"}),
        "scale is not None": (2, {"None"}),
        "for number in ()": (1, {"empty"}),
        "numbers": (1, {"true"}),
        "0 < each < 3": (4, {"true", "false"}),
    }
    assert {type(asks) for _, asks in counted.executions} == {Condition, Loop}
