"""The instructions at which a function decides: conditional jumps and the heads of `for` loops."""

from __future__ import annotations

import dis
from dataclasses import dataclass
from itertools import groupby
from types import CodeType
from typing import cast

from experiments.speed.decisions import Condition, Decisions, Loop, Span

SKIPPED = ("CACHE", "COPY", "EXTENDED_ARG", "NOT_TAKEN", "NOP", "SWAP", "TO_BOOL")
"""Instructions between the one that evaluates a condition and the jump; which there are depends on the version."""
OUTCOMES = (
    ("IF_NOT_NONE", ("not None", "None")),
    ("IF_NONE", ("None", "not None")),
    ("IF_TRUE", ("true", "false")),
    ("IF_FALSE", ("false", "true")),
)
"""What the value was, by the name of the jump: where it jumps, and where it goes on."""


@dataclass(frozen=True)
class Probe:
    """An instruction at which a function decides.

    `own` are its offsets, with those of its prefixes; `next` is the offset of the instruction behind it. `counts`:
    whether it counts as an execution, as all do but the further jumps of a chained comparison.
    """

    asks: Condition | Loop
    own: frozenset[int]
    next: int
    jumps: str
    goes_on: str
    counts: bool = True

    def outcome(self, offset: int) -> str:
        """Return what was decided if the function went on at that offset."""
        return self.goes_on if offset == self.next else self.jumps


def probes(code: CodeType, decisions: Decisions) -> list[Probe]:
    """Return where a function decides, nested functions left out."""
    instructions = list(dis.get_instructions(code))
    found: list[Probe] = []
    for place, instruction in enumerate(instructions[:-1]):
        after = instructions[place + 1].offset
        own = _own(instructions, place)
        if instruction.opname == "FOR_ITER":
            loop = decisions.loop(_span(instruction))
            if loop is not None:
                found.append(Probe(loop, own, after, "empty", "ran"))
        elif outcomes := _outcomes(instruction.opname):
            condition = decisions.condition(_span(_evaluates(instructions, place)))
            if condition is not None:
                found.append(Probe(condition, own, after, *outcomes))
    return _once_each(found)


def _own(instructions: list[dis.Instruction], place: int) -> frozenset[int]:
    """Return the offsets of an instruction and of the prefixes that extend its argument."""
    first = place
    while first and instructions[first - 1].opname == "EXTENDED_ARG":
        first -= 1
    return frozenset(each.offset for each in instructions[first : place + 1])


def _outcomes(name: str) -> tuple[str, str] | None:
    if "JUMP" not in name:
        return None
    return next((outcomes for part, outcomes in OUTCOMES if part in name), None)


def _evaluates(instructions: list[dis.Instruction], place: int) -> dis.Instruction:
    """Return the instruction whose value a jump tests: jumps carry the position of the whole statement."""
    place -= 1
    while place and instructions[place].opname in SKIPPED:
        place -= 1
    return instructions[place]


def _span(instruction: dis.Instruction) -> Span:
    positions = instruction.positions
    return cast(Span, tuple(at or 0 for at in positions)) if positions else (0, 0, 0, 0)


def _once_each(found: list[Probe]) -> list[Probe]:
    """Count a chained comparison at the first of its jumps only."""
    kept: list[Probe] = []
    for asks, group in groupby(found, key=lambda probe: probe.asks):
        jumps = asks.comparisons if isinstance(asks, Condition) else 1
        for index, probe in enumerate(group):
            counts = index % jumps == 0
            kept.append(Probe(asks, probe.own, probe.next, probe.jumps, probe.goes_on, counts))
    return kept
