"""Streams that are closed, readers that have gone, and paths that no file can have."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

RUN = ("gpu=a10g", "workload.duration_s=3", "hydra.run.dir=out", "report=false")
COMMANDS = {
    "simlora": "simlora.cli",
    "simlora-sweep": "simlora.cli.sweep",
    "simlora-capacity": "simlora.cli.capacity",
    "simlora-report": "simlora.cli.report",
    "simlora-trace": "simlora.cli.trace",
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
