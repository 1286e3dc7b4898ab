"""What was counted, a request: calls, branch lines, and those of them for mechanisms that the run has not got."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from linecache import getline
from typing import Any

from experiments.speed.counting import Counted
from experiments.speed.decisions import Condition, Loop
from experiments.speed.mechanisms import mechanism

SELDOM = 0.2
"""Executions a request below which a condition that is always decided alike is not worth a line."""


@dataclass(frozen=True)
class Line:
    """A source line that decides; figures are executions a request.

    `absent` are those that ask for a `mechanism` that is not there. `both_ways`: the line names one, and its answer
    was not always the same. `unclassified` are the conditions of the line, by text, which were always decided alike
    and name none.
    """

    file: str
    line: int
    executions: float
    mechanism: str
    absent: float
    both_ways: bool
    unclassified: dict[str, float]
    text: str


@dataclass(frozen=True)
class Figures:
    """All that was counted, a request."""

    calls: float
    between_files: float
    by_file: dict[str, float]
    lines: list[Line]
    empty_loops: dict[str, float]
    """`for` statements whose body never ran, by place and text."""

    @property
    def branch_lines(self) -> float:
        """Branch lines."""
        return sum(line.executions for line in self.lines)

    @property
    def absent(self) -> dict[str, float]:
        """Branch lines that ask for a mechanism that is not there, by mechanism, most first."""
        found: dict[str, float] = defaultdict(float)
        for line in self.lines:
            if line.mechanism:
                found[line.mechanism] += line.absent
        return _by_count(found)

    @property
    def both_ways(self) -> float:
        """Branch lines that name such a mechanism, and were decided both ways."""
        return sum(line.executions for line in self.lines if line.both_ways)

    @property
    def unclassified(self) -> dict[str, float]:
        """Conditions that were always decided alike and name no mechanism, by place and text."""
        return _by_count(
            {
                f"{line.file}:{line.line}  {text}": times
                for line in self.lines
                for text, times in line.unclassified.items()
            }
        )

    def json(self) -> dict[str, Any]:
        """Return them as JSON has them."""
        return {
            "calls": self.calls,
            "calls_between_files": self.between_files,
            "calls_by_file": self.by_file,
            "branch_lines": self.branch_lines,
            "branch_lines_for_absent_mechanisms": sum(self.absent.values()),
            "absent_by_mechanism": self.absent,
            "named_and_decided_both_ways": self.both_ways,
            "one_sided_unclassified": self.unclassified,
            "loops_that_never_ran": self.empty_loops,
            "lines": [asdict(line) for line in self.lines],
        }


def figures(counted: Counted, requests: int, root: str) -> Figures:
    """Return what was counted for each of so many requests; files below `root` are named from there on."""
    by_file: Counter[str] = Counter()
    for (_, into), times in counted.calls.items():
        by_file[_short(into, root)] += times
    between = sum(times for (before, into), times in counted.calls.items() if before != into)
    loops = {
        f"{_short(file, root)}:{asks.line}  {asks.text}": counted.executions[file, asks] / requests
        for (file, asks), outcomes in counted.outcomes.items()
        if isinstance(asks, Loop) and "ran" not in outcomes
    }
    return Figures(
        by_file.total() / requests,
        between / requests,
        {file: times / requests for file, times in by_file.most_common()},
        _lines(counted, requests, root),
        _by_count({place: times for place, times in loops.items() if times >= SELDOM}),
    )


def _lines(counted: Counted, requests: int, root: str) -> list[Line]:
    """Return the lines that decided something, in order of file and line."""
    asked: dict[tuple[str, int], list[Condition]] = defaultdict(list)
    for file, asks in counted.executions:
        if isinstance(asks, Condition):
            asked[file, asks.line].append(asks)
    return [_line(counted, requests, root, *place, asked[place]) for place in sorted(asked)]


def _line(
    counted: Counted, requests: int, root: str, file: str, line: int, conditions: Iterable[Condition]
) -> Line:
    """Return what a line decided. Where it names several mechanisms, it asks for the one it asks for most often."""
    absent: dict[str, float] = {}
    unclassified: dict[str, float] = {}
    executions, both_ways = 0.0, False
    for condition in sorted(conditions, key=lambda condition: condition.span):
        times = counted.executions[file, condition] / requests
        executions = max(executions, times)
        named, one_sided = mechanism(condition.text), len(counted.outcomes[file, condition]) == 1
        if named and one_sided:
            absent[named] = max(absent.get(named, 0.0), times)
        elif named:
            both_ways = True
        elif one_sided and times >= SELDOM:
            unclassified[condition.text] = times
    most, times = next(iter(_by_count(absent).items()), ("", 0.0))
    text = getline(file, line).strip()
    return Line(_short(file, root), line, executions, most, times, both_ways, unclassified, text)


def _by_count(found: Mapping[str, float]) -> dict[str, float]:
    return dict(sorted(found.items(), key=lambda item: -item[1]))


def _short(file: str, root: str) -> str:
    """Return a file's path from `root` on, or the last two parts of it."""
    return file.removeprefix(root) if file.startswith(root) else "/".join(file.split("/")[-2:])
