"""Cells of a CSV file of measured runs, read strictly: what is wrong is said with its file, line and column."""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import pandas as pd

from simlora.core.errors import InputError, nearest

Cells = dict[str, str]


def columns(path: Path) -> list[str]:
    """Return the names of the file's columns. Raises InputError for what is not a table of text."""
    return _read(path)[0]


def read_cells(path: Path, required: Sequence[str]) -> list[tuple[str, Cells]]:
    """Return the place (file and line) and the cells of every row, once all required columns are there."""
    names, rows = _read(path)
    for name in required:
        if name not in names:
            raise InputError(f"{path} has no column {name}; {nearest(name, names or ['(none)'])}")
    return rows


def number(cells: Mapping[str, str], name: str, place: str) -> float:
    """Return the cell as a finite number."""
    return parsed(cells[name], f"{place} has {name}")


def numbers(
    path: Path,
    columns: Mapping[str, str | Sequence[str]],
    names: Mapping[str, Mapping[str, str]] | None = None,
) -> pd.DataFrame:
    """Return a table of numbers by our names, from a column of theirs or the first of several that is not blank.

    Its index are the places of the rows. `names` are columns of names, each with a table of theirs and ours.
    """
    theirs = {name: [own] if isinstance(own, str) else own for name, own in columns.items()}
    names = names or {}
    rows, places = [], []
    for place, cells in read_cells(path, [*names, *chain.from_iterable(theirs.values())]):
        row: dict[str, Any] = {name: one_of(ours, cells, name, place) for name, ours in names.items()}
        for name, own in theirs.items():
            row[name] = number(cells, next((each for each in own if cells[each]), own[-1]), place)
        rows.append(row)
        places.append(place)
    return pd.DataFrame(rows, index=places, columns=[*names, *columns])


def positive(table: pd.DataFrame) -> None:
    """Raise InputError for the first number of a table that is not above 0; its index are the places of its rows."""
    for place, row in table[(table <= 0).any(axis=1)].iterrows():
        name = next(iter(row[row <= 0].index))
        raise InputError(f"{place} has {name} = {row[name]:g}, must be above 0")


def one_of(names: Mapping[str, str], cells: Mapping[str, str], column: str, place: str) -> str:
    """Return our name of what stands in a cell, from a table of theirs and ours."""
    if cells[column] not in names:
        near = nearest(cells[column] or "", names)
        raise InputError(f"{place} has {column} {cells[column]!r}; {near}")
    return names[cells[column]]


def parsed(text: str, where: str) -> float:
    """Return a text as a finite number; `where` is how a sentence about it begins."""
    try:
        value = float(text)
    except (TypeError, ValueError):
        raise InputError(f"{where} = {text!r}, must be a number") from None
    if not math.isfinite(value):
        raise InputError(f"{where} = {value}, must be finite")
    return value


def _read(path: Path) -> tuple[list[str], list[tuple[str, Cells]]]:
    try:
        with path.open(encoding="utf-8", newline="") as file:
            table = csv.DictReader(file)
            return list(table.fieldnames or []), [(f"{path} line {table.line_num}", cells) for cells in table]
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise InputError(f"{path} is not a text file") from None
