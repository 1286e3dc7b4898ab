"""Folders that go away while a command is at work, and those that a `~` stands for."""

import shutil
from collections.abc import Callable
from importlib import resources
from pathlib import Path
from typing import Any

import pytest

from simlora.cli import capacity, job, main, report, sweep, trace
from simlora.sweeps import running
from simlora.workload import file
from tests.cli.command import sentence
from tests.traces import csv

RUN = ("workload.duration_s=3", "report=false")
SWEEP = ("workload.duration_s=3", "--jobs=1")
CAPACITY = (*SWEEP, "--seeds=1", "--longest=1", "--precision=0.5", "--start=1")
TRACE = ("0,a,8,100,10", "1,b,8,100,10")


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    """A folder to be in, which may go away, with a home and a cache beside it."""
    folder = tmp_path / "here"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("SIMLORA_CACHE_DIR", str(tmp_path / "cache"))
    return folder


def going(monkeypatch: pytest.MonkeyPatch, module: Any, name: str, folder: Path, after: bool = True) -> None:
    """Have a folder go away when a function has been called, or is about to be."""
    real: Callable[..., Any] = getattr(module, name)

    def called(*arguments: Any, **keywords: Any) -> Any:
        if not after:
            shutil.rmtree(folder, ignore_errors=True)
        found = real(*arguments, **keywords)
        shutil.rmtree(folder, ignore_errors=True)
        return found

    monkeypatch.setattr(module, name, called)


# Going away


@pytest.mark.parametrize("gone", [".", "out"])
def test_a_runs_folder_is_made_anew(here, gone, monkeypatch):
    going(monkeypatch, job, "run", here / gone)
    assert main([*RUN, "hydra.run.dir=out"]) == 0
    assert (here / "out" / "summary.json").exists()


@pytest.mark.parametrize(
    ("command", "arguments", "left", "gone"),
    [
        *((sweep, SWEEP, "sweep.parquet", gone) for gone in ("cache", "here/out", "here")),
        (capacity, CAPACITY, "capacity.json", "here/out"),
    ],
)
def test_a_sweep_and_a_search_keep_their_runs(tmp_path, command, arguments, left, gone, monkeypatch, capsys):
    going(monkeypatch, running, "simulated", tmp_path / gone)
    assert command.main([*arguments, "--out=out"]) == (2 if gone == "here" else 0)
    if gone == "here":
        assert "cannot write results to out: No such file or directory" in sentence(capsys)
    else:
        assert (tmp_path / "here/out" / left).exists()
    assert list((tmp_path / "cache").glob("*.json"))


@pytest.mark.parametrize(
    ("command", "arguments"),
    [(main, ("report=false", "hydra.run.dir=out")), (sweep.main, ("--jobs=1",))],
    ids=["run", "sweep"],
)
def test_a_trace_that_has_gone_when_it_is_read(tmp_path, command, arguments, monkeypatch, capsys):
    folder = tmp_path / "traces"
    folder.mkdir()
    csv(folder, *TRACE, name="t.csv")
    going(monkeypatch, file, "read_table", folder, after=False)
    assert command(["workload=file", f"workload.path={folder}/t.csv", *arguments]) == 2
    assert f"{folder}/t.csv" in sentence(capsys)
    assert not list(Path().rglob("*"))


@pytest.mark.parametrize(
    ("command", "arguments"),
    [(main, RUN), (sweep.main, SWEEP), (report.main, "a"), (trace.main, ["list"])],
)
def test_a_current_folder_that_has_gone_is_a_sentence(here, command, arguments, capsys):
    here.rmdir()
    assert command([*arguments]) == 2
    assert "the current folder cannot be used: No such file or directory" in sentence(capsys)


# Homes


def written(tmp_path: Path) -> list[str]:
    """Everything that is written under a home, and assert that nothing is elsewhere."""
    assert not list((tmp_path / "here").rglob("~*"))
    home = tmp_path / "home"
    return sorted(path.relative_to(home).as_posix() for path in home.rglob("*") if path.is_file())


@pytest.mark.parametrize("folder", ["'~/x'", "${oc.env:OUT}"])
def test_a_runs_folder_may_begin_at_home_also_where_a_variable_names_it(tmp_path, folder, monkeypatch):
    shipped = resources.files("simlora.latency") / "calibrations" / "a10g-llama_7b-tp1.yaml"
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "mine.yaml").write_text(shipped.read_text())
    monkeypatch.setenv("OUT", "~/x")
    calibrated = ("gpu=a10g", "model=llama_7b", "calibration='~/mine.yaml'")
    assert main([*RUN, *calibrated, f"hydra.run.dir={folder}"]) == 0
    assert "x/summary.json" in written(tmp_path)


def test_so_may_what_other_commands_write(tmp_path, monkeypatch):
    csv(Path(), *TRACE, name="t.csv")
    monkeypatch.setenv("SIMLORA_CACHE_DIR", "~/cache")
    (tmp_path / "home").mkdir()
    assert sweep.main([*SWEEP, "--out=~/s"]) == 0
    assert capacity.main([*CAPACITY, "--out", "~/c"]) == 0
    assert report.main(["~/s", "--out=~/pages/s.html"]) == 0
    assert trace.main(["info", "t.csv", "--picture=~/t.png"]) == 0
    assert trace.main(["convert", "t.csv", "~/t.parquet"]) == 0
    found = {path for path in written(tmp_path) if not path.startswith(("cache/", ".cache/"))}
    assert found == {
        *("s/sweep.parquet", "s/.sweep.lock", "pages/s.html", "t.png", "t.parquet"),
        *("c/capacity.json", "c/capacity.png", "c/runs.parquet"),
    }
    assert list((tmp_path / "home/cache").glob("*.json"))
