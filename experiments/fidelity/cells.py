"""Measured files, read strictly: what is wrong is said with its file, line and column.

Files of runs are read as sheets.yaml says: inputs, what was measured, and the overrides that simulate them. Figures of
rows are kept, so that a row is simulated once and an interrupted command goes on where it was.
"""

from __future__ import annotations

import csv
import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

import pandas as pd

from experiments.studies import running
from experiments.studies.reading import load as read_sheet
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


SHEETS = Path(__file__).with_name("sheets.yaml")


@dataclass(frozen=True)
class Run:
    """One run: its inputs, what was measured, and the overrides that simulate it."""

    inputs: Mapping[str, Any]
    measured: Mapping[str, float]
    overrides: Sequence[str]


AnyRun = TypeVar("AnyRun", bound=Run)


@cache
def sheets() -> dict[str, Any]:
    """Return sheets.yaml as it is."""
    return read_sheet(SHEETS)


def runs(
    kind: type[AnyRun], name: str, path: Path, names: Mapping[str, Mapping[str, str]] | None = None
) -> list[AnyRun]:
    """Read all runs by a sheet; `names` are columns of names, each with a table of theirs and ours.

    Raises InputError, naming file, line and column, for what is not in the schema.
    """
    sheet, names = sheets()[name], names or {}
    table = numbers(path, sheet["columns"], names)
    inputs, measured = table[[*names, *sheet["inputs"]]], _computed(table, sheet["measured"])
    positive(pd.concat([table[sheet["inputs"]], measured], axis=1))
    values = table.join(_computed(table, sheet.get("values", {})))
    templates = list(chain.from_iterable(sheet["overrides"]))
    parts = (part.to_dict("records") for part in (inputs, measured, values))
    return [
        kind(own, theirs, [template.format_map(value) for template in templates])
        for own, theirs, value in zip(*parts, strict=True)
    ]


def _computed(table: pd.DataFrame, terms: Mapping[str, str]) -> pd.DataFrame:
    found = {name: table.eval(term, engine="python") for name, term in terms.items()}
    return pd.DataFrame(found, index=table.index)


def kept(question: Any, simulate: Callable[[], Any]) -> Any:
    """Return the figures that are kept under a `question` of plain values, or simulate and keep them."""
    return running.kept(["fidelity", question], simulate)


def hashed(*files: str | Path) -> str:
    """Return the hash of files that figures depend on, as part of a question."""
    found = hashlib.sha256()
    for file in files:
        found.update(hashlib.sha256(Path(file).read_bytes()).digest())
    return found.hexdigest()[:16]
