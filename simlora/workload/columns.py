"""Columns: checked numbers and names out of a table's raw cells, a whole column at a time."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from simlora.core.arrays import Floats, Ints
from simlora.core.checks import shown
from simlora.core.errors import InputError
from simlora.workload.table import Table

TOKENS_MAX = 1_000_000_000
SECONDS_MAX = 1e12
NOT_SCALAR = (bool, np.bool_, list, dict, np.ndarray)


def refuse(table: Table, name: str, bad: NDArray[np.bool_], must: str) -> None:
    """Raise InputError for the first row where `bad`, if any: file, row, column, value, what would be right."""
    if not bad.any():
        return
    index = int(np.argmax(bad))
    more = int(bad.sum()) - 1
    others = f" ({more:,} more {'row' if more == 1 else 'rows'} like it)" if more else ""
    cell = table.columns[name][index]
    text = str(cell).strip() if _is_number(cell) else shown(cell)
    raise InputError(f"{table.where(index)}: {name} is {text}, must be {must}{others}")


def numbers(table: Table, name: str, must: str) -> Floats:
    """Return the column as floats, NaN where a cell is empty. Raises InputError for what is not a number."""
    cells = table.columns[name]
    filled = cells.copy()
    filled[empty(table, name)] = np.nan
    try:
        if not any(isinstance(cell, NOT_SCALAR) for cell in cells):
            return filled.astype(np.float64)
    except (TypeError, ValueError, OverflowError):
        pass
    refuse(table, name, np.array([not _is_number(cell) for cell in filled]), must)
    raise AssertionError("astype refused a column of numbers")


def seconds(table: Table, name: str) -> Floats:
    """Return the column as times: finite, 0 or later."""
    must = "a finite number of seconds, at least 0"
    values = numbers(table, name, must)
    refuse(table, name, ~((values >= 0) & (values <= SECONDS_MAX)), must)
    return values + 0.0


def tokens(table: Table, name: str, least: int = 1) -> Ints:
    """Return the column as token counts: whole, at least `least`."""
    return whole_numbers(table, name, f"a whole number of tokens, at least {least}", least, TOKENS_MAX)


def whole_numbers(table: Table, name: str, must: str, least: int, most: int) -> Ints:
    """Return the column as whole numbers in [least, most]."""
    values = numbers(table, name, must)
    refuse(table, name, ~((values >= least) & (values <= most) & (values == np.floor(values))), must)
    return values.astype(np.int64)


def names(table: Table, name: str) -> list[str | None]:
    """Return the column as names, None where a cell is empty. A whole number is its digits."""
    cells = table.columns[name]
    plain = (str, int, float, np.number, type(None))
    odd = [isinstance(cell, bool) or not isinstance(cell, plain) or _is_broken(cell) for cell in cells]
    refuse(table, name, np.array(odd), "a name")
    return [None if cell is None or cell == "" else str(cell) for cell in cells]


def _is_broken(cell: Any) -> bool:
    """Return whether a text has half a character: JSON can write one, and no file can hold it."""
    return (
        isinstance(cell, str)
        and not cell.isascii()
        and any("\ud800" <= letter <= "\udfff" for letter in cell)
    )


def empty(table: Table, name: str) -> NDArray[np.bool_]:
    """Return which cells of the column are empty [rows]; all of them where there is no such column."""
    cells = table.columns.get(name)
    if cells is None:
        return np.ones(len(table), dtype=np.bool_)
    return np.array([cell is None or (isinstance(cell, str) and not cell) for cell in cells], dtype=np.bool_)


def _is_number(cell: Any) -> bool:
    if isinstance(cell, NOT_SCALAR):
        return False
    try:
        float(cell)
    except (TypeError, ValueError, OverflowError):
        return False
    return True
