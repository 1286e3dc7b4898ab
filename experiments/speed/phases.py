"""Run `simlora` with its phases timed, as a process of its own: `python -m experiments.speed.phases OUT [key=value …]`.

OUT gets, as JSON, the wall and CPU seconds of each phase, without those inside it, and the peak memory until its end.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from simlora.api import running
from simlora.cli import job, main
from simlora.report import html
from simlora.results.result import Result

PHASES = ("reading", "simulating", "summary", "writing", "report.html")
READING, SIMULATING, SUMMARY, WRITING, PAGE = PHASES
OTHER = "other"


class Phases:
    """The phases of this process, which may lie inside one another."""

    def __init__(self) -> None:
        self.found = {
            name: dict.fromkeys(("wall_s", "cpu_s", "peak_memory_bytes"), 0.0) for name in (*PHASES, OTHER)
        }
        self._now, self._since_s, self._since_cpu_s = OTHER, time.perf_counter(), time.process_time()

    @contextmanager
    def inside(self, name: str) -> Iterator[None]:
        """Count what happens inside as a phase."""
        outer = self._go_on(name)
        try:
            yield
        finally:
            self._go_on(outer)

    def _go_on(self, name: str) -> str:
        """Begin or resume a phase; return the one that was going on."""
        was, wall_s, cpu_s = self._now, time.perf_counter(), time.process_time()
        figures = self.found[was]
        figures["wall_s"] += wall_s - self._since_s
        figures["cpu_s"] += cpu_s - self._since_cpu_s
        figures["peak_memory_bytes"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024.0
        self._now, self._since_s, self._since_cpu_s = name, wall_s, cpu_s
        return was

    def of(self, owner: Any, name: str, phase: str) -> None:
        """Count what a function does, which is found at `owner.name`, as a phase."""
        function: Callable[..., Any] = getattr(owner, name)

        def timed(*values: Any, **named: Any) -> Any:
            with self.inside(phase):
                return function(*values, **named)

        setattr(owner, name, timed)


def run(out: Path, arguments: list[str]) -> int:
    """Run the command; return its exit status."""
    phases, bar = Phases(), running.bar

    @contextmanager
    def simulating(*values: Any) -> Iterator[Callable[[int], None]]:
        with phases.inside(SIMULATING), bar(*values) as tell:
            yield tell

    running.bar = simulating
    phases.of(job, "ready", READING)
    phases.of(job, "run", SUMMARY)
    phases.of(Result, "save", WRITING)
    phases.of(html, "render", PAGE)
    status = main(arguments)
    out.write_text(json.dumps(phases.found), encoding="utf-8")
    return status


if __name__ == "__main__":
    sys.exit(run(Path(sys.argv[1]), sys.argv[2:]))
