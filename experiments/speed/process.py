"""Runs Python in a process of its own, and says what that took."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

from simlora.core.errors import InputError


def ran(
    what: str, arguments: Sequence[str], heard: Callable[[subprocess.Popen[str]], str], **streams: Any
) -> tuple[dict[str, float], str]:
    """Run Python with these arguments; return its wall and CPU seconds and peak memory, and what was `heard` of it.

    `streams`: where its output goes, as Popen takes it. Raises InputError if it fails, with the last line heard.
    """
    begin_s = time.perf_counter()
    with subprocess.Popen([sys.executable, *arguments], text=True, **streams) as process:
        said = heard(process)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        reason = "".join(f": {line}" for line in said.strip().splitlines()[-1:])
        raise InputError(f"{what} ended with exit status {process.returncode}{reason}")
    return {
        "wall_s": time.perf_counter() - begin_s,
        "cpu_s": usage.ru_utime + usage.ru_stime,
        "peak_memory_bytes": usage.ru_maxrss * 1024.0,
    }, said


def nothing(process: subprocess.Popen[str]) -> str:
    """Hear nothing of what a process says."""
    return ""


def printed(process: subprocess.Popen[str]) -> str:
    """Return all that a process prints into a pipe."""
    assert process.stdout is not None
    return process.stdout.read()
