"""The command as a user types it: in this process for speed, or in one of its own."""

import json
import os
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from simlora.cli import main

Capture = pytest.CaptureFixture[str]
SHORT = ("workload.duration_s=10", "report=false")
SCRIPTS = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]["scripts"]
COMMANDS = {
    name: target.partition(":")[0] for name, target in SCRIPTS.items() if target.startswith("simlora")
}
"""The module of each command."""
CALIBRATION = """
gpu: a10g
model: llama_7b
tp: 1
provenance: {kind: derived, source: made up for the tests}
prefill: {intercept_s: 0.01, per_token_s: 2.0e-4}
decode: {intercept_s: 0.025, per_sequence_s: 1.0e-4, per_context_token_s: 1.0e-6}
kernels:
  mbgmv:
    decode: {intercept_s: 0.002, per_rank_sum_s: 1.0e-6}
    prefill: {intercept_s: 0.002, per_token_rank_s: 1.0e-7}
adapter_load: {latency_s: 1.0e-3, bytes_per_s: 1.0e+10}
cpu_lora: {tokens_per_core: 16, per_token_s: 1.0e-5, sync_s: 1.0e-5}
"""


def python(command: str) -> list[str]:
    return [sys.executable, "-c", f"import sys; from {COMMANDS[command]} import main; sys.exit(main())"]


def run(
    folder: Path, command: str, *arguments: str, closed: Sequence[int] = ()
) -> subprocess.CompletedProcess[str]:
    """Run a command in a process of its own, maybe with some of its three streams closed."""
    return subprocess.run(
        [*python(command), *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=lambda: [os.close(stream) for stream in closed],
    )


def sentence(capture: Capture) -> str:
    """The one line on stderr, of a command that was refused."""
    (line,) = capture.readouterr().err.splitlines()
    assert line.startswith("simlora: error: ")
    return line


@dataclass(frozen=True)
class Ended:
    """How a command ended and what it said."""

    status: int
    out: str
    err: str

    @property
    def sentence(self) -> str:
        """The one line on stderr."""
        lines = self.err.splitlines()
        assert len(lines) == 1, self.err
        return lines[0]


class Command:
    """Runs simlora in a folder of its own, in which there is a calibration `cal.yaml`."""

    def __init__(self, folder: Path, capture: pytest.CaptureFixture[str]) -> None:
        self.folder = folder
        self._capture = capture
        (folder / "cal.yaml").write_text(CALIBRATION)

    def __call__(self, *arguments: str) -> Ended:
        """Run in this process, with our calibration unless another is named."""
        status = main(self.complete(arguments))
        out, err = self._capture.readouterr()
        return Ended(status, out, err)

    def apart(self, *arguments: str, **environment: str) -> Ended:
        """Run in a process of its own."""
        done = subprocess.run(
            [sys.executable, "-m", "simlora", *self.complete(arguments)],
            cwd=self.folder,
            env=environment or None,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        return Ended(done.returncode, done.stdout, done.stderr)

    @staticmethod
    def complete(arguments: Sequence[str]) -> list[str]:
        named = any(argument.startswith("calibration=") for argument in arguments)
        return list(arguments) if named else ["calibration=cal.yaml", *arguments]

    def files(self) -> list[str]:
        """Everything in the folder but what was there before, as relative paths."""
        paths = (path.relative_to(self.folder).as_posix() for path in self.folder.rglob("*"))
        return sorted(path for path in paths if path != "cal.yaml")

    def summary(self, folder: str) -> dict[str, Any]:
        """Read a run's summary.json."""
        found: dict[str, Any] = json.loads((self.folder / folder / "summary.json").read_text())
        return found
