"""Notebooks say what their scripts say, run from an empty folder, and fail where a claim of theirs is false."""

import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import nbformat
import pytest
from IPython.core.interactiveshell import InteractiveShell
from matplotlib import pyplot
from nbclient.exceptions import CellExecutionError
from traitlets.config import Config

from notebooks.run import FOLDER, NAMES, execute, main, paired, scripted

LARGEST_BYTES = 300_000


def said(notebook: nbformat.NotebookNode) -> list[tuple[str, str, str]]:
    """Return the kind, id and text of every cell."""
    return [(cell.cell_type, cell.id, cell.source) for cell in notebook.cells]


def test_every_script_is_a_notebook_and_the_other_way_round():
    assert sorted(path.stem for path in FOLDER.glob("*.py")) == sorted([*NAMES, "run"])
    assert sorted(path.stem for path in FOLDER.glob("*.ipynb")) == sorted(NAMES)


@pytest.mark.parametrize(
    ("arguments", "status", "word"), [(["--help"], 0, "capacity_plan"), (["firstrun"], 2, "no notebook")]
)
def test_the_command_says_which_there_are(arguments, status, word, capsys):
    with pytest.raises(SystemExit) as left:
        main(arguments)
    assert left.value.code == status
    captured = capsys.readouterr()
    assert word in captured.out + captured.err


@pytest.mark.parametrize("name", NAMES)
def test_the_pair_says_the_same(name):
    kept = nbformat.read(paired(name), as_version=4)
    nbformat.validate(kept)
    assert said(kept) == said(scripted(name)), f"run: make notebooks ARGS={name}"


@pytest.mark.parametrize("name", NAMES)
def test_what_is_kept_was_executed_without_an_error_and_is_small(name):
    assert paired(name).stat().st_size < LARGEST_BYTES
    code = [cell for cell in nbformat.read(paired(name), as_version=4).cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1))
    outputs = [output for cell in code for output in cell.outputs]
    assert not [
        output for output in outputs if output.output_type == "error" or output.get("name") == "stderr"
    ]
    assert any("image/png" in output.get("data", {}) for output in outputs)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "temporary").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "temporary"))  # what a notebook leaves there goes with it
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setenv("LOKY_MAX_CPU_COUNT", "1")  # what it simulates takes less time than processes to start
    return tmp_path


def test_the_first_runs_in_a_kernel(folder):
    execute(scripted(NAMES[0]), folder)


class Shell(InteractiveShell):
    """What a kernel has inside, which takes seconds to start."""

    def enable_gui(self, gui: str | None = None) -> None:
        """Figures are drawn inline, without a window."""


@pytest.fixture
def shell(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shell]:
    """Cells change this process, which is put back as it was."""
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend("")
    monkeypatch.setenv("PATH", os.environ["PATH"])
    monkeypatch.setenv("IPYTHONDIR", str(folder / ".ipython"))
    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])
    shell = Shell.instance(config=Config({"HistoryManager": {"enabled": False}}))
    shell.enable_matplotlib("inline")
    yield shell
    Shell.clear_instance()
    pyplot.close("all")
    pyplot.switch_backend("agg")
    for name in ("diary", "my_policy"):  # modules that notebooks write
        sys.modules.pop(name, None)


@pytest.mark.parametrize("name", NAMES[1:])
def test_its_cells_run(name, shell):
    if name == "capacity_plan":
        pytest.importorskip("torch")
    for cell in scripted(name).cells:
        if cell.cell_type == "code":
            shell.run_cell(cell.source).raise_error()


@pytest.mark.parametrize("name", NAMES)
def test_it_claims_something(name):
    claims = [line for cell in scripted(name).cells for line in cell.source.splitlines() if "assert " in line]
    assert len(claims) >= 5


def test_a_command_that_fails_in_a_notebook_fails_it(tmp_path):
    notebook = scripted("first_run")
    notebook.cells = [nbformat.v4.new_code_cell("%%bash\nfalse")]
    with pytest.raises(CellExecutionError, match="CalledProcessError"):
        execute(notebook, tmp_path)
