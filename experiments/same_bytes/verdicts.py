"""What the answers of two checkouts to one scenario say, and the report about all of them."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from experiments.same_bytes.checkouts import Answer
from experiments.same_bytes.drawing import Scenario
from tests.golden.hashing import differing

SAME, REFUSED, CRASHED, DIFFERENT = "the same", "refused by both", "crashed in both", "DIFFERENT"
SHOWN = 5
"""Messages that are printed of a kind."""


def verdict(old: Answer, new: Answer) -> tuple[str, str]:
    """Return what two answers are together, and in words what is to be said of that."""
    if "digests" in old and "digests" in new:
        tables = differing(old["digests"], new["digests"])
        return (DIFFERENT, f"tables {', '.join(tables)}") if tables else (SAME, "")
    if "refused" in old and "refused" in new:
        same = old["refused"] == new["refused"]
        return REFUSED, "" if same else f"old: {old['refused']}\n    new: {new['refused']}"
    if "crashed" in old and old.get("crashed") == new.get("crashed"):
        return CRASHED, f"{new['crashed']}: {new['message']}"
    return DIFFERENT, f"old {_outcome(old)}; new {_outcome(new)}"


def _outcome(answer: Answer) -> str:
    if "digests" in answer:
        return "simulated"
    if "refused" in answer:
        return f"refused: {answer['refused']}"
    return f"crashed: {answer['crashed']}: {answer['message']}"


@dataclass
class Report:
    """Counts of verdicts, of choices that were simulated, and of mechanisms that occurred."""

    verdicts: Counter[str] = field(default_factory=Counter)
    chosen: Counter[tuple[str, str]] = field(default_factory=Counter)
    simulated: Counter[tuple[str, str]] = field(default_factory=Counter)
    occurred: Counter[str] = field(default_factory=Counter)
    said: dict[str, list[str]] = field(default_factory=dict)
    refusals: Counter[str] = field(default_factory=Counter)

    def add(self, scenario: Scenario, old: Answer, new: Answer) -> None:
        """Count one scenario; print at once what differs."""
        found, words = verdict(old, new)
        self.verdicts[found] += 1
        choices = [*scenario.choices.items()]
        self.chosen.update(choices)
        if found == SAME:
            self.simulated.update(choices)
            self.occurred.update(new["counts"].keys())
        if found == REFUSED:
            self.refusals[new["refused"][:110]] += 1
        if words:
            self.said.setdefault(found, []).append(
                f"scenario {scenario.number}: {words}\n    {command(scenario)}"
            )
        if found == DIFFERENT:
            print(f"{DIFFERENT}, {self.said[found][-1]}", flush=True)

    @property
    def differs(self) -> bool:
        """Whether any scenario came out differently."""
        return self.verdicts[DIFFERENT] > 0

    def lines(self) -> Iterable[str]:
        """Yield the report."""
        yield "Choices, by how many scenarios simulated them of those that had them:"
        for slot in dict.fromkeys(slot for slot, _ in sorted(self.chosen)):
            names = sorted(name for known, name in self.chosen if known == slot)
            each = (f"{name} {self.simulated[slot, name]}/{self.chosen[slot, name]}" for name in names)
            yield f"  {slot}: {', '.join(each)}"
        yield "Mechanisms, by how many scenarios they occurred in:"
        yield "  " + ", ".join(f"{name} {times}" for name, times in sorted(self.occurred.items()))
        yield from _titled(
            "Most frequent refusals:", [f"{n} x {text}" for text, n in self.refusals.most_common(SHOWN)]
        )
        yield from _titled("Refusals with other words:", self.said.get(REFUSED, ()))
        yield from _titled("Crashes in both:", self.said.get(CRASHED, ()))
        total = sum(self.verdicts.values())
        counts = (f"{self.verdicts[name]} {name}" for name in (SAME, REFUSED, CRASHED, DIFFERENT))
        yield f"{total} scenarios: {', '.join(counts)}"


def command(scenario: Scenario) -> str:
    """Return the shell command that simulates a scenario with this checkout."""
    return shlex.join(["simlora", *scenario.overrides, "report=false"])


def _titled(title: str, lines: Sequence[str]) -> Iterable[str]:
    if lines:
        yield f"{title} {len(lines)}"
        yield from (f"  {line}" for line in lines[:SHOWN])
