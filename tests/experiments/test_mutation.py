"""Mutants: a mistake that a test notices kills it, and one that no test notices is printed."""

from __future__ import annotations

from pathlib import Path

import pytest

from experiments.mutation import __main__ as command
from experiments.mutation.__main__ import killer, main
from experiments.mutation.mutants import mutants

SOURCE = """\
@flagged(True)
def least(values: list[float] | None, than: int = 3) -> int:
    assert values, "nothing is given"
    return len([value for value in values if value <= than])
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "simlora" / "core").mkdir(parents=True)
    (tmp_path / "simlora" / "core" / "least.py").write_text(SOURCE)
    return tmp_path


def test_mistakes_are_those_that_a_person_makes(project: Path) -> None:
    found = ["".join(mutant.difference(project)[2:]).strip() for mutant in mutants(project, ["core"])]
    assert "+    return len([value for value in values if value < than])" in found
    assert "+def least(values: list[float] | None, than: int = 4) -> int:" in found
    assert '+    assert not values, "nothing is given"' in found
    assert not any("flagged" in line for line in found), "a decorator says how a class is compiled"
    assert len(set(found)) == len(found)


def test_a_mutant_is_gone_when_its_tests_are_over(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[str, str]] = []

    def passes(copy: Path, *tests: str, limit_s: float) -> bool:
        seen.append((" ".join(tests), (copy / "simlora/core/least.py").read_text()))
        return tests != ("memory",)

    monkeypatch.setattr(command, "passes", passes)
    (project / "tests" / "core").mkdir(parents=True)
    (project / "tests" / "core" / "test_sizes.py").write_text("from simlora.core.least import least")
    (project / "tests" / "core" / "test_total.py").write_text("from simlora.core.total import total")
    mutant = next(mutants(project, ["core"]))
    limits_s = dict.fromkeys(command.JUDGES, 3.0) | {"golden": 2.0, "memory": 2.0, "engine": 1.0}
    assert killer(mutant, project, limits_s) == "memory"
    asked = [tests for tests, _ in seen]
    assert asked == ["core/test_sizes.py", "golden", "core", "engine", "memory"], (
        "the likeliest, then the quickest"
    )
    assert all(code == mutant.code(project) != SOURCE for _, code in seen)
    assert (project / "simlora/core/least.py").read_text() == SOURCE


@pytest.mark.parametrize(("by", "status", "told"), [("", 1, "LIVED"), ("golden", 0, "killed by golden")])
def test_what_became_of_each_is_printed(
    by: str, status: int, told: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command, "baseline", lambda project: {})
    monkeypatch.setattr(command, "killer", lambda mutant, project, limits_s: by)
    assert main(["--rooms", "memory", "--only", "adapter_cache", "--mutants", "2", "--jobs", "1"]) == status
    out = capsys.readouterr().out
    assert out.count(f" {told} ") == 2
    assert ("     -" in out) is (not by)
    assert f"{0 if status else 2} of 2 mutants died" in out
