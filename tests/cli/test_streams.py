"""Streams that are closed, readers that have gone, and paths that no file can have."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

RUN = ("gpu=a10g", "workload.duration_s=3", "hydra.run.dir=out", "report=false")
COMMANDS = {
    "simlora": "simlora.cli",
    "simlora-sweep": "simlora.cli.sweep",
    "simlora-capacity": "simlora.cli.capacity",
    "simlora-plan": "simlora.cli.plan",
    "simlora-validate": "simlora.cli.validate",
    "simlora-report": "simlora.cli.report",
    "simlora-serve": "simlora.cli.serve",
    "simlora-record": "simlora.cli.record",
    "simlora-trace": "simlora.cli.trace",
    "simlora-calibrate": "simlora.cli.calibrate",
}


def python(command: str) -> list[str]:
    return [sys.executable, "-c", f"import sys; from {COMMANDS[command]} import main; sys.exit(main())"]


def run(
    folder: Path, command: str, *arguments: str, closed: int | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*python(command), *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=None if closed is None else lambda: os.close(closed),
    )


@pytest.mark.parametrize("stream", [0, 1, 2])
def test_a_stream_that_is_closed_does_not_matter(tmp_path: Path, stream: int) -> None:
    ended = run(tmp_path, "simlora", *RUN, closed=stream)
    assert ended.returncode == 0
    assert {"summary.json", "requests.parquet"} <= set(os.listdir(tmp_path / "out"))


@pytest.mark.parametrize("stream", [0, 1, 2])
def test_nor_does_it_to_worker_processes(tmp_path: Path, stream: int) -> None:
    sweep = ("gpu=a10g", "workload.duration_s=3", "speedup=1,2", "--jobs=2", "--out=out")
    ended = run(tmp_path, "simlora-sweep", *sweep, closed=stream)
    assert (ended.returncode, "Loky" in ended.stdout) == (0, False), ended.stdout + ended.stderr
    assert set(pd.read_parquet(tmp_path / "out" / "sweep.parquet")["status"]) == {"ran"}


def test_a_mistake_is_one_also_where_nobody_reads(tmp_path: Path) -> None:
    assert run(tmp_path, "simlora", "gpu=x", closed=2).returncode == 2


@pytest.mark.parametrize("command", COMMANDS)
def test_help_whose_reader_has_gone_is_no_error(tmp_path: Path, command: str) -> None:
    process = subprocess.Popen(
        [*python(command), "--help"], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    said = process.stderr.read().decode()
    process.stderr.close()
    assert (process.wait(), said) == (0, "")


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_log_whose_reader_has_gone_is_no_error(tmp_path: Path, unbuffered: str) -> None:
    process = subprocess.Popen(
        [*python("simlora"), "--info", "all"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONUNBUFFERED": unbuffered},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    said = process.stderr.read().decode()
    process.stderr.close()
    assert (process.wait(), said) == (0, "")


FULL = Path("/dev/full")


@pytest.mark.skipif(not FULL.exists(), reason="there is no /dev/full")
@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize(
    ("command", "arguments"),
    [
        *((command, ("--help",)) for command in COMMANDS),
        ("simlora", ("--version",)),
        ("simlora", ("--info", "all")),
        ("simlora-sweep", ("--version",)),
        ("simlora-trace", ("list",)),
        ("simlora", RUN),
    ],
)
def test_a_stdout_that_is_full_is_named(
    tmp_path: Path, command: str, arguments: tuple[str, ...], unbuffered: str
) -> None:
    with FULL.open("wb") as full:
        ended = subprocess.run(
            [*python(command), *arguments],
            cwd=tmp_path,
            env=os.environ | {"PYTHONUNBUFFERED": unbuffered},
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert (ended.returncode, ended.stderr) == (
        2,
        "simlora: error: cannot print on standard output: No space left on device; must be a file, pipe or terminal "
        f"with room{'; the results are in out' if arguments == RUN else ''}\n",
    )


@pytest.mark.parametrize(
    ("command", "arguments"),
    [
        ("simlora", ("workload=file", "workload.path={}")),
        ("simlora", ("calibration={}",)),
        ("simlora-report", ("{}",)),
        ("simlora-trace", ("info", "{}")),
        ("simlora-sweep", ("system=slora", "--out={}")),
    ],
)
@pytest.mark.parametrize("path", ["x" * 5000, "~nouser/x"])
def test_a_path_that_cannot_be_is_named_in_a_sentence(
    tmp_path: Path, command: str, arguments: tuple[str, ...], path: str
) -> None:
    written = f"'{path}'" if command == "simlora" else path
    ended = run(tmp_path, command, *(argument.format(written) for argument in arguments))
    assert ended.returncode == 2, ended.stderr[-300:]
    assert "Traceback" not in ended.stderr
    assert ended.stderr.startswith("simlora: error: ")
    assert ended.stderr.count("\n") == 1
