"""Streams that are closed, readers that have gone, and paths that no file can have."""

import os
import subprocess
import sys
from importlib import import_module
from io import BytesIO, TextIOWrapper
from pathlib import Path
from typing import TextIO

import pandas as pd
import pytest

from simlora import cli
from simlora.cli import report, sweep, trace
from tests.cli.command import COMMANDS, Capture, python, run, sentence

RUN = ("gpu=a10g", "workload.duration_s=3", "hydra.run.dir=out", "report=false")
FULL = Path("/dev/full")


def test_streams_that_are_closed_do_not_matter(tmp_path):
    ended = run(tmp_path, "simlora", *RUN, closed=[0, 1])
    assert ended.returncode == 0
    assert {"summary.json", "requests.parquet"} <= set(os.listdir(tmp_path / "out"))


def test_nor_does_it_to_worker_processes(tmp_path):
    """They do not start without a stderr."""
    sweep = ("gpu=a10g", "workload.duration_s=3", "speedup=1,2", "--jobs=2", "--out=out")
    ended = run(tmp_path, "simlora-sweep", *sweep, closed=[2])
    assert (ended.returncode, "Loky" in ended.stdout) == (0, False), ended.stdout + ended.stderr
    assert set(pd.read_parquet(tmp_path / "out" / "sweep.parquet")["status"]) == {"ran"}


def test_a_mistake_is_one_also_without_a_reader(tmp_path):
    assert run(tmp_path, "simlora-trace", "lst", closed=[2]).returncode == 2


def readerless(folder: Path, words: list[str], **environment: str) -> tuple[int, str]:
    """Return how a process ends, and what it says, whose standard output has lost its reader."""
    with subprocess.Popen(
        words, cwd=folder, env=os.environ | environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        process.stdout.close()
        return process.wait(), process.stderr.read().decode()


def test_output_whose_reader_has_gone_is_no_error(tmp_path):
    assert readerless(tmp_path, [*python("simlora-sweep"), "--help"]) == (0, "")
    log = [*python("simlora"), "--info", "plugins"]
    assert readerless(tmp_path, log, PYTHONUNBUFFERED="1") == (0, "")


NO_ROOM = (
    "simlora: error: cannot print on standard output: No space left on device; must be a file, pipe or terminal with "
    "room"
)


@pytest.mark.skipif(not FULL.exists(), reason="there is no /dev/full")
@pytest.mark.parametrize(
    ("words", "said", "unbuffered"),
    [
        ([*python("simlora"), "--info", "plugins"], f"{NO_ROOM}\n", "1"),
        ([*python("simlora-trace"), "list"], f"{NO_ROOM}\n", ""),
        ([*python("simlora"), *RUN], f"{NO_ROOM}; the results are in out\n", ""),
    ],
    ids=["a log", "a list", "a run"],
)
def test_a_stdout_that_is_full_is_named(tmp_path, words, said, unbuffered):
    with FULL.open("wb") as full:
        ended = subprocess.run(
            words,
            cwd=tmp_path,
            env=os.environ | {"PYTHONUNBUFFERED": unbuffered},
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert (ended.returncode, ended.stderr) == (2, said)


def asked_for_help(
    command: str, stdout: TextIO, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> tuple[int, str]:
    """Return how a command ends, and what it says on stderr, whose help goes there."""
    with stdout:
        monkeypatch.setattr(sys, "stdout", stdout)
        return import_module(COMMANDS[command]).main(["--help"]), capsys.readouterr().err


@pytest.mark.parametrize("command", COMMANDS)
def test_every_help_can_be_printed_in_any_locale_and_without_a_reader(command, monkeypatch, capsys):
    reader, writer = os.pipe()
    os.close(reader)
    for stdout in (TextIOWrapper(BytesIO(), "ascii", "strict"), os.fdopen(writer, "w")):
        assert asked_for_help(command, stdout, monkeypatch, capsys) == (0, "")


@pytest.mark.skipif(not FULL.exists(), reason="there is no /dev/full")
@pytest.mark.parametrize("command", COMMANDS)
def test_every_help_that_finds_no_room_says_so(command, monkeypatch, capsys):
    with FULL.open("w") as full:
        assert asked_for_help(command, full, monkeypatch, capsys) == (2, f"{NO_ROOM}\n")


@pytest.mark.parametrize(
    ("main", "arguments"),
    [
        (cli.main, ("workload=file", "workload.path='{}'")),
        (cli.main, ("calibration='{}'",)),
        (report.main, ("{}",)),
        (trace.main, ("info", "{}")),
        (sweep.main, ("system=slora", "--out={}")),
    ],
    ids=["a trace", "a calibration", "a run", "another trace", "results"],
)
def test_a_path_that_cannot_be_is_named_in_a_sentence(simlora, main, arguments, capsys):
    assert main([argument.format("x" * 5000) for argument in arguments]) == 2
    assert sentence(capsys)
