"""Counts the calls, decisions and empty loops of a function that runs, by tracing it."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from experiments.speed.decisions import Condition, Loop, read
from experiments.speed.probes import Probe, probes

Tracer = Callable[[FrameType, str, Any], Any]


@dataclass
class Counted:
    """What was counted. A file is a path, a call goes from one file into one, the same or another.

    `outcomes`: how often a condition or loop of a file was decided that way. `executions`: how often it was asked.
    """

    calls: Counter[tuple[str, str]] = field(default_factory=Counter)
    outcomes: dict[tuple[str, Condition | Loop], set[str]] = field(default_factory=dict)
    executions: Counter[tuple[str, Condition | Loop]] = field(default_factory=Counter)


class Counting:
    """Traces what runs of some folders' Python files; of `decide`, those below some folders, the decisions too.

    A generator that is resumed counts as a call, as does the body of a comprehension where that is a function (until
    Python 3.11). Calls of functions that are not written in Python are not seen.
    """

    def __init__(self, folders: Collection[Path], decide: Collection[Path]) -> None:
        self._folders = tuple(f"{folder}/" for folder in folders)
        self._decide = tuple(f"{folder}/" for folder in decide)
        self._calls: Counter[tuple[str, CodeType]] = Counter()
        self._counted_files: dict[str, bool] = {}
        self._probes: dict[CodeType, dict[int, Probe]] = {}
        self._steps: dict[CodeType, Counter[tuple[int, int]]] = {}

    def count(self, run: Callable[[], object]) -> Counted:
        """Run a function and return what it did; takes some thirty times as long as without counting."""
        before = sys.gettrace()
        # Python 3.12 reports instructions only if a frame has asked for them when tracing begins.
        sys._getframe().f_trace_opcodes = True
        sys.settrace(self._entered)
        try:
            run()
        finally:
            sys.settrace(before)
        return self._counted()

    def _entered(self, frame: FrameType, event: str, argument: Any) -> Tracer | None:
        code = frame.f_code
        file = code.co_filename
        counted = self._counted_files.get(file)
        if counted is None:
            counted = self._counted_files[file] = file.startswith(self._folders)
        if not counted:
            return None
        before = frame.f_back
        self._calls[before.f_code.co_filename if before else "", code] += 1
        watched = self._probes.get(code)
        if watched is None:
            watched = self._probes[code] = self._probes_of(code)
            self._steps[code] = Counter()
        if not watched:
            return None
        # In this order: Python 3.13 reports instructions to a tracer that is there when they are asked for.
        frame.f_trace = tracer = _tracer(watched, self._steps[code])
        frame.f_trace_lines, frame.f_trace_opcodes = False, True
        return tracer

    def _probes_of(self, code: CodeType) -> dict[int, Probe]:
        if not code.co_filename.startswith(self._decide):
            return {}
        found = probes(code, read(Path(code.co_filename)))
        return {offset: probe for probe in found for offset in probe.own}

    def _counted(self) -> Counted:
        counted = Counted()
        for (before, code), times in self._calls.items():
            counted.calls[before, code.co_filename] += times
        for code, steps in self._steps.items():
            for (offset, after), times in steps.items():
                probe = self._probes[code][offset]
                if after in probe.own:
                    continue
                asked, outcome = (code.co_filename, probe.asks), probe.outcome(after)
                counted.outcomes.setdefault(asked, set()).add(outcome)
                # A loop is asked once for each of its turns, and ends once.
                if probe.counts and outcome != "ran":
                    counted.executions[asked] += times
        return counted


def _tracer(watched: Collection[int], steps: Counter[tuple[int, int]]) -> Tracer:
    """Return what notes, of one call of a function, where it goes on from the instructions that are watched."""
    last = -1

    def trace(frame: FrameType, event: str, argument: Any) -> Tracer:
        nonlocal last
        if event == "opcode":
            at = frame.f_lasti
            if last >= 0:
                steps[last, at] += 1
            last = at if at in watched else -1
        return trace

    return trace
