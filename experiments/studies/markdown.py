"""Tables and numbers in Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence


def table(head: Sequence[str], rows: Iterable[Sequence[str]], numbers: bool = False) -> str:
    """Return a table. `numbers`: all columns but the first are, and stand at the right."""
    rule = f"| --- |{' --: |' * (len(head) - 1)}" if numbers else f"|{'---|' * len(head)}"
    return "\n".join([_line(head), rule, *map(_line, rows)])


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
