"""Pages, tables and numbers in Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

AS_THEY_ARE = ("|", "* ", "```")
"""What tables, lists and code begin with, whose lines stay apart."""


def page(template: Path, **values: object) -> str:
    """Return a template with its `{names}` filled in, each paragraph in one line; what is empty is left out."""
    paragraphs = template.read_text(encoding="utf-8").strip().split("\n\n")
    filled = (
        (part if part.startswith(AS_THEY_ARE) else part.replace("\n", " ")).format(**values)
        for part in paragraphs
    )
    return "\n\n".join(part for part in filled if part) + "\n"


def table(head: Sequence[str], rows: Iterable[Sequence[str]], numbers: bool = False) -> str:
    """Return a table. `numbers`: all columns but the first are, and stand at the right."""
    rule = f"| --- |{' --: |' * (len(head) - 1)}" if numbers else f"|{'---|' * len(head)}"
    return "\n".join([_line(head), rule, lines(rows)])


def lines(rows: Iterable[Sequence[str]]) -> str:
    """Return the lines of a table below its head."""
    return "\n".join(map(_line, rows))


def by_column(corner: str, columns: Mapping[str, Mapping[str, str]]) -> str:
    """Return a table of columns by their names, each with the same labels of rows; `corner` is above these."""
    labels = next(iter(columns.values()))
    rows = ([label, *(column[label] for column in columns.values())] for label in labels)
    return table([corner, *columns], rows)


def percent(share: float, digits: int = 1) -> str:
    """Return a share in per cent."""
    return f"{100 * share:,.{digits}f} %"


def _line(cells: Sequence[str]) -> str:
    """Return a line of a table, in which a `|` of a cell stays one."""
    escaped = (cell.replace("|", "\\|") for cell in cells)
    return f"| {' | '.join(escaped)} |"
