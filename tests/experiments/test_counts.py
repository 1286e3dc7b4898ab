"""What is counted of a plain S-LoRA request, and that it stays small."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from experiments.speed import counts
from tests.builds import FRAMES

CALLS_AT_MOST, CALLS_BETWEEN_FILES_AT_MOST, LINES_AT_MOST = 152.0, 114.0, 1071.0
"""A plain S-LoRA request, of which REQUESTS are simulated."""
REQUESTS = 1000
LOOPS = """
def squares(numbers):
    found = []
    for number in numbers:
        if number % 2:
            found.append(square(number))
    return found


def square(number):
    return number * number
"""

pytestmark = FRAMES


def test_a_plain_request_stays_cheap() -> None:
    found = counts.plain(REQUESTS)
    assert sum(found.calls.values()) <= CALLS_AT_MOST
    assert found.between_files <= CALLS_BETWEEN_FILES_AT_MOST
    assert sum(found.lines.values()) <= LINES_AT_MOST


def test_counting_twice_finds_the_same_and_the_command_prints_it(capsys: pytest.CaptureFixture[str]) -> None:
    counts.plain(20)  # so that what is imported at its first use is there
    found = counts.plain(20)
    assert counts.plain(20) == found
    assert counts.main(["--requests", "20", "--lines"]) == 0
    assert f"{sum(found.lines.values()):.2f} lines\n" in capsys.readouterr().out


def test_calls_and_lines_are_counted_one_by_one(tmp_path: Path) -> None:
    file = tmp_path / "loops.py"
    file.write_text(LOOPS)
    names: dict = {}
    exec(compile(LOOPS, file, "exec"), names)  # noqa: S102
    before = sys.gettrace()
    found = counts.count(lambda: names["squares"]([1, 2, 3]), 1, f"{tmp_path}/")
    assert sys.gettrace() is before
    assert found.calls == {(__file__, "loops.py"): 1, ("loops.py", "loops.py"): 2}
    assert found.between_files == 1
    times = dict(zip(range(3, 12), (1, 4, 3, 2, 1, 0, 0, 0, 2), strict=True))
    assert found.lines == {("loops.py", line): number for line, number in times.items() if number}
