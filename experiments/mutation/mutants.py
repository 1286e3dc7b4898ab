"""Mutants: the code of a file with one small mistake in it, as Cosmic Ray's operators make them."""

from __future__ import annotations

import difflib
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.mutating import mutate_code
from cosmic_ray.operators.operator import Operator
from cosmic_ray.plugins import get_operator
from parso.tree import NodeOrLeaf

COMPARED = ("Lt", "LtE", "Gt", "GtE", "Eq", "NotEq")
OPERATORS = (
    *(f"ReplaceComparisonOperator_{one}_{other}" for one, other in itertools.permutations(COMPARED, 2)),
    "ReplaceBinaryOperator_Add_Sub",
    "ReplaceBinaryOperator_Sub_Add",
    "ReplaceBinaryOperator_Mul_Div",
    "ReplaceBinaryOperator_Div_Mul",
    "ReplaceBinaryOperator_FloorDiv_Mul",
    "ReplaceBinaryOperator_Mod_Add",
    "ReplaceAndWithOr",
    "ReplaceOrWithAnd",
    "ReplaceTrueWithFalse",
    "ReplaceFalseWithTrue",
    "ReplaceBreakWithContinue",
    "ReplaceContinueWithBreak",
    "ReplaceUnaryOperator_Delete_Not",
    "AddNot",
    "NumberReplacer",
    "ZeroIterationForLoop",
)
"""Mistakes that a person makes: a wrong comparison or sign, one too many or too few, a condition turned round."""


@dataclass(frozen=True)
class Mutant:
    """The `occurrence`-th place of a file (below the project's folder) at which an operator makes a mistake."""

    file: Path
    operator: str
    occurrence: int

    def code(self, project: Path) -> str:
        """Return the file's text with the mistake."""
        code = mutate_code(
            (project / self.file).read_text(encoding="utf-8"), _operator(self.operator), self.occurrence
        )
        assert code is not None, "there are fewer places"
        return str(code)

    def difference(self, project: Path) -> list[str]:
        """Return the lines that differ, as diff writes them."""
        before = (project / self.file).read_text(encoding="utf-8").splitlines()
        lines = difflib.unified_diff(before, self.code(project).splitlines(), n=0, lineterm="")
        return list(lines)[2:]


def mutants(project: Path, rooms: Sequence[str]) -> Iterator[Mutant]:
    """Yield all mutants of the rooms' files, in the order of files and operators."""
    for room in rooms:
        for path in sorted((project / "simlora" / room).rglob("*.py")):
            nodes = list(ast_nodes(get_ast(path.read_text(encoding="utf-8"))))
            for name in OPERATORS:
                operator = _operator(name)
                places = [node for node in nodes for _ in operator.mutation_positions(node)]
                for occurrence, node in enumerate(places):
                    if not _decorates(node):
                        yield Mutant(path.relative_to(project), name, occurrence)


def _decorates(node: NodeOrLeaf | None) -> bool:
    """Whether a node is part of a decorator, which says how a class is compiled."""
    while node is not None and node.type != "decorator":
        node = node.parent
    return node is not None


def _operator(name: str) -> Operator:
    made: Operator = get_operator(f"core/{name}")()
    return made
