"""Notebooks say what their scripts say, run from an empty folder, and fail where a claim of theirs is false."""

from __future__ import annotations

from pathlib import Path

import nbformat
import pytest
from nbclient.exceptions import CellExecutionError

from notebooks.run import FOLDER, NAMES, execute, main, paired, scripted

LARGEST_BYTES = 300_000


def said(notebook: nbformat.NotebookNode) -> list[tuple[str, str, str]]:
    """Return the kind, id and text of every cell."""
    return [(cell.cell_type, cell.id, cell.source) for cell in notebook.cells]


def test_every_script_is_a_notebook_and_the_other_way_round() -> None:
    assert sorted(path.stem for path in FOLDER.glob("*.py")) == sorted([*NAMES, "run"])
    assert sorted(path.stem for path in FOLDER.glob("*.ipynb")) == sorted(NAMES)


@pytest.mark.parametrize(
    ("arguments", "status", "word"), [(["--help"], 0, "capacity_plan"), (["firstrun"], 2, "no notebook")]
)
def test_the_command_says_which_there_are(
    arguments: list[str], status: int, word: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as left:
        main(arguments)
    assert left.value.code == status
    captured = capsys.readouterr()
    assert word in captured.out + captured.err


@pytest.mark.parametrize("name", NAMES)
def test_the_pair_says_the_same(name: str) -> None:
    kept = nbformat.read(paired(name), as_version=4)
    nbformat.validate(kept)
    assert said(kept) == said(scripted(name)), f"run: make notebooks ARGS={name}"


@pytest.mark.parametrize("name", NAMES)
def test_what_is_kept_was_executed_without_an_error_and_is_small(name: str) -> None:
    assert paired(name).stat().st_size < LARGEST_BYTES
    code = [cell for cell in nbformat.read(paired(name), as_version=4).cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1))
    outputs = [output for cell in code for output in cell.outputs]
    assert not [
        output for output in outputs if output.output_type == "error" or output.get("name") == "stderr"
    ]
    assert any("image/png" in output.get("data", {}) for output in outputs)


@pytest.mark.parametrize("name", NAMES)
def test_it_runs(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if name == "capacity_plan":
        pytest.importorskip("torch")
    (tmp_path / "temporary").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "temporary"))  # what a notebook leaves there goes with it
    monkeypatch.setenv("LOKY_MAX_CPU_COUNT", "1")  # what it simulates takes less time than processes to start
    execute(scripted(name), tmp_path)


@pytest.mark.parametrize("name", NAMES)
def test_it_claims_something(name: str) -> None:
    claims = [line for cell in scripted(name).cells for line in cell.source.splitlines() if "assert " in line]
    assert len(claims) >= 5


def test_a_false_claim_fails(tmp_path: Path) -> None:
    notebook = scripted("first_run")
    notebook.cells = [nbformat.v4.new_code_cell("assert 1 + 1 == 3")]
    with pytest.raises(CellExecutionError, match="AssertionError"):
        execute(notebook, tmp_path)


def test_a_command_that_fails_in_a_notebook_fails_it(tmp_path: Path) -> None:
    notebook = scripted("first_run")
    notebook.cells = [nbformat.v4.new_code_cell("%%bash\nfalse")]
    with pytest.raises(CellExecutionError, match="CalledProcessError"):
        execute(notebook, tmp_path)
