"""What is wrong with a log: every fault of it, as rows of one table."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from simlora.core.checks import shown
from simlora.core.errors import InputError
from simlora.workload.columns import Flags
from simlora.workload.table import Table

SHOWN = 3
"""Rows of one kind of fault that are listed; the others are counted."""
MOST = 10
"""Faults that are listed where each has a name of its own."""
WHOLE = "(the file)"
"""The column of a fault that is no column's."""


@dataclass(frozen=True)
class Fault:
    """A cell, a column or a file that is wrong: what is there, and what would be right.

    `row` is its number in the file; None for what concerns no row. `more` rows like it are not listed.
    """

    column: str
    there: str
    must: str
    row: int | None = None
    more: int = 0


class Faulty(InputError):
    """A log that cannot be imported, with all its faults."""

    def __init__(self, path: str, faults: Sequence[Fault]) -> None:
        self.faults = tuple(faults)
        count = sum(1 + fault.more for fault in faults)
        what = "1 fault, which stands" if count == 1 else f"{count:,} faults, which stand"
        super().__init__(f"{path} has {what} in the table above; nothing was written")


def of_rows(table: Table, name: str, bad: Flags, must: str | Callable[[int], str]) -> list[Fault]:
    """Return the faults of a column's cells where `bad` [rows]; `must` is the same for all, or that of an index."""
    cells = table.columns[name]
    return rows_at(
        table.rows[bad], name, [in_words(cells[at]) for at in np.flatnonzero(bad)[:SHOWN]], must, bad
    )


def rows_at(
    rows: Any, name: str, there: Sequence[str], must: str | Callable[[int], str], bad: Flags | None = None
) -> list[Fault]:
    """Return the faults of some rows of a file [bad], of which `there` says what the first SHOWN hold."""
    at = range(len(rows)) if bad is None else np.flatnonzero(bad).tolist()
    found = []
    for place, text in enumerate(there[:SHOWN]):
        says = must if isinstance(must, str) else must(at[place])
        last = place == min(len(rows), SHOWN) - 1
        found.append(
            Fault(name, text, says, int(rows[place]), len(rows) - SHOWN if last and len(rows) > SHOWN else 0)
        )
    return found


def capped(faults: list[Fault], what: str) -> list[Fault]:
    """Return faults of one kind, no more than MOST of them and how many others there are."""
    rest = len(faults) - MOST
    return (
        faults
        if rest <= 0
        else [*faults[:MOST], Fault(faults[0].column, f"{rest:,} more such {what}", "", faults[MOST - 1].row)]
    )


def in_words(cell: Any) -> str:
    """Return what stands in a cell; a number as itself, text in quotes."""
    return shown(cell.item() if isinstance(cell, np.generic) else cell)


def as_table(faults: Iterable[Fault]) -> str:
    """Return the faults as a table: those of the file first, then row by row."""
    lines = [("row", "column", "there is", "must be")]
    for fault in sorted(faults, key=lambda each: -1 if each.row is None else each.row):
        row = "-" if fault.row is None else f"{fault.row:,}"
        lines.append((row, fault.column, fault.there, fault.must))
        if fault.more:
            lines.append(("...", fault.column, f"{fault.more:,} more like it", ""))
    return columns(lines)


def columns(lines: Sequence[Sequence[str]]) -> str:
    """Return lines of cells as text whose columns are aligned."""
    wide = [max(map(len, cells)) for cells in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, wide, strict=True)).rstrip()
        for line in lines
    )
