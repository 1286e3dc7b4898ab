"""The conditions and loops of a source file: where each is, and its text."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

Span = tuple[int, int, int, int]
"""First line, last line, first column, last column, as `dis` has them."""


@dataclass(frozen=True)
class Condition:
    """One operand of a decision: `a` and `b` of `if a and not b`.

    `line` is where the decision begins. A chained comparison, `a < b < c`, jumps once for each of its `comparisons`.
    """

    line: int
    text: str
    span: Span
    comparisons: int


@dataclass(frozen=True)
class Loop:
    """A `for` statement; `span` is its own, `over` that of the sequence."""

    line: int
    text: str
    span: Span
    over: Span


@dataclass(frozen=True)
class Decisions:
    """What one file decides."""

    conditions: tuple[Condition, ...]
    loops: tuple[Loop, ...]

    def condition(self, span: Span) -> Condition | None:
        """Return the innermost condition that this stretch of source text is part of."""
        around = [condition for condition in self.conditions if _within(span, condition.span)]
        return min(around, key=lambda condition: _size(condition.span), default=None)

    def loop(self, span: Span) -> Loop | None:
        """Return the `for` statement of this stretch, which is all of it, or its sequence (Python 3.12)."""
        return next((loop for loop in self.loops if span in (loop.span, loop.over)), None)


@cache
def read(path: Path) -> Decisions:
    """Return the decisions of a source file: `if`, `while`, `and`, `or`, and the `if` of comprehensions.

    Assertions are left out, whose cost `python -O` saves.
    """
    source = path.read_text(encoding="utf-8")
    tree = ast.parse(source)
    nodes = list(_without_assertions(tree))
    decisions = [test for node in nodes for test in _tests(node)]
    inner = {id(operand) for decision in decisions for operand in _connectives(decision)}
    decisions += [node for node in nodes if isinstance(node, ast.BoolOp) and id(node) not in inner]
    conditions = [_condition(source, decision, leaf) for decision in decisions for leaf in _leaves(decision)]
    loops = [_loop(source, node) for node in nodes if isinstance(node, ast.For)]
    return Decisions(tuple(conditions), tuple(loops))


def _without_assertions(node: ast.AST) -> Iterator[ast.AST]:
    yield node
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, ast.Assert):
            yield from _without_assertions(child)


def _tests(node: ast.AST) -> list[ast.expr]:
    if isinstance(node, ast.If | ast.IfExp | ast.While):
        return [node.test]
    return node.ifs if isinstance(node, ast.comprehension) else []


def _connectives(decision: ast.expr) -> Iterator[ast.expr]:
    """Yield the `and`, `or` and `not` that join the operands of a decision."""
    if isinstance(decision, ast.BoolOp):
        yield decision
        for value in decision.values:
            yield from _connectives(value)
    elif isinstance(decision, ast.UnaryOp) and isinstance(decision.op, ast.Not):
        yield decision
        yield from _connectives(decision.operand)


def _leaves(decision: ast.expr) -> Iterator[ast.expr]:
    """Yield the operands of a decision, in the order in which they are evaluated."""
    if isinstance(decision, ast.BoolOp):
        for value in decision.values:
            yield from _leaves(value)
    elif isinstance(decision, ast.UnaryOp) and isinstance(decision.op, ast.Not):
        yield from _leaves(decision.operand)
    else:
        yield decision


def _condition(source: str, decision: ast.expr, leaf: ast.expr) -> Condition:
    comparisons = len(leaf.ops) if isinstance(leaf, ast.Compare) else 1
    return Condition(decision.lineno, _text(source, leaf), _span(leaf), comparisons)


def _loop(source: str, node: ast.For) -> Loop:
    text = f"for {_text(source, node.target)} in {_text(source, node.iter)}"
    return Loop(node.lineno, text, _span(node), _span(node.iter))


def _text(source: str, node: ast.expr) -> str:
    return " ".join((ast.get_source_segment(source, node) or "").split())


def _span(node: ast.expr | ast.stmt) -> Span:
    return node.lineno, node.end_lineno or 0, node.col_offset, node.end_col_offset or 0


def _within(inner: Span, outer: Span) -> bool:
    """Whether a stretch of source text lies inside another one, or is the same."""
    begins = (inner[0], inner[2]) >= (outer[0], outer[2])
    return begins and (inner[1], inner[3]) <= (outer[1], outer[3])


def _size(span: Span) -> tuple[int, int]:
    return span[1] - span[0], span[3] - span[2]
