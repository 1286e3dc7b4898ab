"""Columns: checked numbers and names out of a table's raw cells, a whole column at a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simlora.core.arrays import Counts, Floats, Ints
from simlora.core.checks import shown
from simlora.core.errors import InputError
from simlora.workload.cells import Kind, Objects, objects
from simlora.workload.table import Table

Flags = NDArray[np.bool_]
TOKENS_MAX = 1_000_000_000
SECONDS_MAX = 1e12
NOT_SCALAR = (bool, np.bool_, list, dict, np.ndarray)


def refuse(table: Table, name: str, bad: Flags, must: str) -> None:
    """Raise InputError for the first row where `bad`, if any: file, row, column, value, what would be right."""
    if not bad.any():
        return
    index = int(np.argmax(bad))
    more = int(bad.sum()) - 1
    others = f" ({more:,} more {'row' if more == 1 else 'rows'} like it)" if more else ""
    cell = table.columns[name][index]
    text = str(cell).strip() if _is_number(cell) else shown(cell)
    raise InputError(f"{table.where(index)}: {name} is {text}, must be {must}{others}")


def _numbers(
    table: Table, name: str, must: str, function: Callable[[Floats], NDArray[Kind]]
) -> NDArray[Kind]:
    """Return what `function` makes of the column's numbers [rows], NaN where a cell is empty.

    Raises InputError for what is not a number.
    """
    cells = table.columns[name]
    try:
        return cells.mapped(lambda each: function(_floats(each)))
    except (TypeError, ValueError, OverflowError):
        pass
    refuse(table, name, cells.mapped(_odd), must)
    raise AssertionError("astype refused a column of numbers")


def _floats(cells: Objects) -> Floats:
    """Return cells as floats. Raises TypeError, ValueError or OverflowError for what is not a number."""
    if any(isinstance(cell, NOT_SCALAR) for cell in cells):
        raise TypeError
    filled = cells.copy()
    filled[empty_cells(cells)] = np.nan
    return filled.astype(np.float64)


def _odd(cells: Objects) -> Flags:
    """Return which cells are not numbers, empty ones excepted."""
    return np.array([not _is_number(cell) for cell in cells], dtype=np.bool_) & ~empty_cells(cells)


def seconds(table: Table, name: str) -> Floats:
    """Return the column as times: finite, 0 or later."""
    must = "a finite number of seconds, at least 0"
    values = _numbers(table, name, must, lambda values: values + 0.0)  # -0 becomes 0
    refuse(table, name, ~((values >= 0) & (values <= SECONDS_MAX)), must)
    return values


def tokens(table: Table, name: str, least: int = 1, among: Flags | None = None) -> Ints:
    """Return the column as token counts: whole, at least `least`; it is that of rows not `among`."""
    must = f"a whole number of tokens, at least {least}"
    return whole_numbers(table, name, must, least, TOKENS_MAX, among)


def whole_numbers(
    table: Table, name: str, must: str, least: int, most: int, among: Flags | None = None
) -> Ints:
    """Return the column as whole numbers in [least, most]; it is `least` of rows not `among`, which are empty."""

    def whole(values: Floats) -> Ints:
        fits = (values >= least) & (values <= most) & (values == np.floor(values))
        return np.where(fits, values, least - 1).astype(np.int64)

    found = _numbers(table, name, must, whole)
    if among is not None:
        found[~among] = least
    refuse(table, name, found < least, must)
    return found


def names(table: Table, name: str) -> list[str | None]:
    """Return the column as names, None where a cell is empty. A whole number is its digits."""
    codes, found = labels(table, name)
    cells: list[str | None] = objects([*found, None])[codes].tolist()  # equal names are one object
    return cells


def labels(table: Table, name: str) -> tuple[Counts, list[str]]:
    """Return the number of each cell's name [rows], -1 where it is empty, and the names, without white space around."""
    cells = table.columns[name]
    refuse(table, name, cells.mapped(nameless), "a name")
    found: dict[str, int] = {}

    def number(cells: Objects) -> NDArray[np.int32]:
        numbers = (
            -1 if empty else found.setdefault(str(cell).strip(), len(found))
            for cell, empty in zip(cells, empty_cells(cells), strict=True)
        )
        return np.fromiter(numbers, dtype=np.int32, count=len(cells))

    return cells.mapped(number), list(found)


def nameless(cells: Objects) -> Flags:
    """Return which cells can be no name."""
    plain = (str, int, float, np.number, type(None))
    odd = (isinstance(cell, bool) or not isinstance(cell, plain) or _is_broken(cell) for cell in cells)
    return np.fromiter(odd, dtype=np.bool_, count=len(cells))


def _is_broken(cell: Any) -> bool:
    """Return whether a text has half a character: JSON can write one, and no file can hold it."""
    return (
        isinstance(cell, str)
        and not cell.isascii()
        and any("\ud800" <= letter <= "\udfff" for letter in cell)
    )


def empty(table: Table, name: str) -> Flags:
    """Return which cells of the column are empty [rows]; all of them where there is no such column."""
    cells = table.columns.get(name)
    return np.ones(len(table), dtype=np.bool_) if cells is None else cells.mapped(empty_cells)


def empty_cells(cells: Objects) -> Flags:
    """Return which cells are empty: no value, or white space."""
    return np.array(
        [cell is None or (isinstance(cell, str) and not cell.strip()) for cell in cells], dtype=np.bool_
    )


def _is_number(cell: Any) -> bool:
    if isinstance(cell, NOT_SCALAR):
        return False
    try:
        float(cell)
    except (TypeError, ValueError, OverflowError):
        return False
    return True
