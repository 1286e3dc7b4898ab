"""The engine stays easy to read: no long file, no long function, no class with many attributes."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import simlora.engine

FILES = sorted(Path(simlora.engine.__file__).parent.rglob("*.py"))
FILE_LINES, FUNCTION_LINES, ATTRIBUTES = 350, 45, 22


def attributes(kind: ast.ClassDef) -> set[str]:
    """Attributes that a class annotates or its methods assign; class variables are not counted."""
    annotated = {
        each.target.id
        for each in kind.body
        if isinstance(each, ast.AnnAssign)
        and isinstance(each.target, ast.Name)
        and "ClassVar" not in ast.unparse(each.annotation)
    }
    assigned = {
        each.attr
        for each in ast.walk(kind)
        if isinstance(each, ast.Attribute)
        and isinstance(each.ctx, ast.Store)
        and isinstance(each.value, ast.Name)
        and each.value.id == "self"
    }
    return annotated | assigned


def too_long(path: Path) -> Iterator[str]:
    """Yield what in a file is beyond the limits."""
    text = path.read_text(encoding="utf-8")
    if text.count("\n") > FILE_LINES:
        yield f"{path.name} has more than {FILE_LINES} lines"
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef) and (node.end_lineno or 0) - node.lineno >= FUNCTION_LINES:
            yield f"{node.name} has more than {FUNCTION_LINES} lines"
        if isinstance(node, ast.ClassDef) and len(attributes(node)) > ATTRIBUTES:
            yield f"{node.name} has more than {ATTRIBUTES} attributes"


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_no_file_function_or_class_is_large(path):
    assert list(too_long(path)) == []
