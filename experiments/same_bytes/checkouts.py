"""One long-lived process per checkout, which simulates scenarios with the simlora of that checkout."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from simlora.config.names import RENAMED
from simlora.core.errors import InputError

PROJECT = Path(__file__).resolve().parents[2]
WORKER = Path(__file__).with_name("worker.py")
HASHING = PROJECT / "tests/golden/hashing.py"
Answer = dict[str, Any]


def checked(checkout: Path) -> Path:
    """Return the folder of a checkout. Raises InputError if there is no simlora in it."""
    found = checkout.resolve()
    if not (found / "simlora/__init__.py").is_file():
        raise InputError(
            f"OLD_CHECKOUT {checkout} has no simlora/__init__.py, must be the root of a checkout"
        )
    return found


def run_in(
    checkout: Path, command: Sequence[str], failure: str, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run a command with the code of a checkout. Raises InputError with the last line that it says if it fails."""
    variables = os.environ | {"PYTHONPATH": str(checkout), **environment}
    done = subprocess.run(command, cwd=checkout, env=variables, capture_output=True, text=True)
    if done.returncode:
        reason = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise InputError(f"{checkout} {failure}: {reason}")
    return done


class Worker:
    """A process that simulates with one checkout; `folder` is where it runs and keeps its cache."""

    def __init__(self, checkout: Path, folder: Path) -> None:
        self.checkout, self.folder = checkout, folder
        folder.mkdir(parents=True, exist_ok=True)
        self._start()

    def _start(self) -> None:
        environment = os.environ | {
            "PYTHONPATH": str(self.checkout),
            "SIMLORA_CACHE_DIR": str(self.folder / "cache"),
            "OMP_NUM_THREADS": "1",
        }
        self._log = (self.folder / "stderr.txt").open("a", encoding="utf-8")
        self._process = subprocess.Popen(
            [sys.executable, "-P", str(WORKER), str(HASHING)],
            cwd=self.folder,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
        )
        self.send(RENAMED)
        used = self.receive().get("simlora")
        if used is None or not Path(used).resolve().is_relative_to(self.checkout):
            raise InputError(f"the worker of {self.checkout} runs {used or 'nothing'}, see {self._log.name}")

    def send(self, message: Any) -> None:
        """Send one line of JSON."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(message) + "\n")
        self._process.stdin.flush()

    def receive(self) -> Answer:
        """Return the next answer; of a process that ended without one, its exit status as a crash."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if line:
            answer: Answer = json.loads(line)
            return answer
        return {"crashed": f"exit status {self._process.wait()}", "message": f"see {self._log.name}"}

    def restart_if_ended(self) -> None:
        """Start the process again if it has ended."""
        if self._process.poll() is not None:
            self.close()
            self._start()

    def close(self) -> None:
        """End the process."""
        if self._process.poll() is None:
            self._process.terminate()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout, self._log):
            if stream is not None:
                stream.close()


class Pair:
    """Two workers, one of the old checkout and one of the new, that simulate each scenario at the same time."""

    def __init__(self, old: Path, new: Path, folder: Path) -> None:
        self.workers = [Worker(old, folder / "old")]
        try:
            self.workers.append(Worker(new, folder / "new"))
        except BaseException:
            self.close()
            raise

    def answers(self, overrides: Sequence[str]) -> tuple[Answer, Answer]:
        """Return what the old checkout answers to a scenario, and what the new one does."""
        for worker in self.workers:
            worker.restart_if_ended()
            worker.send(list(overrides))
        old, new = (worker.receive() for worker in self.workers)
        return old, new

    def close(self) -> None:
        """End both processes."""
        for worker in self.workers:
            worker.close()
