"""A table: the columns of a CSV, Parquet or JSONL file as they stand there, before anybody checks them."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from simlora.core.arrays import Ints
from simlora.core.checks import shown
from simlora.core.errors import InputError, nearest

Column = NDArray[np.object_]
Columns = tuple[list[str], list[Column], Ints]


@dataclass(frozen=True)
class Table:
    """Raw columns [rows] by name: text, numbers or lists; None is an empty cell.

    `rows` are the row numbers that a person sees: the line of a CSV or JSONL file (a CSV's header is
    line 1; no cell spans lines), the row of a Parquet file counted from 1.
    """

    path: str
    columns: dict[str, Column]
    rows: Ints

    def __len__(self) -> int:
        return len(self.rows)

    def where(self, index: int) -> str:
        """Return `file, row n` for the row at `index`."""
        return f"{self.path}, row {self.rows[index]}"

    def part(self, name: str, index: Ints) -> Table:
        """Return one column at some rows, which keep their numbers."""
        return Table(self.path, {name: self.columns[name][index]}, self.rows[index])

    def at(self, index: Ints) -> Table:
        """Return all columns at some rows, which keep their numbers."""
        return Table(
            self.path, {name: cells[index] for name, cells in self.columns.items()}, self.rows[index]
        )


def read_table(
    path: str, rows: int | None = None, only: Sequence[str] | None = None, foreign: bool = False
) -> Table:
    """Return the file's columns. Raises InputError where there is no such table, in one sentence.

    `rows`: no more than the first so many are kept; CSV and JSONL are read no further, Parquet and .json are read whole
    and then cut. `only`: of the columns those of these names that are there. `foreign`: suffixes of FOREIGN are read
    too.
    """
    file = Path(path).expanduser()
    known = READERS | FOREIGN if foreign else READERS
    reader = known.get(file.suffix.lower())
    if not file.exists():
        raise InputError(f"{path} does not exist")
    if file.is_dir():
        raise InputError(f"{path} is a folder, must be a file: {', '.join(known)}")
    if reader is None:
        raise InputError(f"{path} has the suffix {shown(file.suffix)}, must be one of {', '.join(known)}")
    try:
        if not file.stat().st_size:
            raise InputError(f"{path} is empty")
        names, columns, numbers = reader(path, rows, only)
    except UnicodeDecodeError:
        raise InputError(f"{path} is not text in UTF-8") from None
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}") from None
    table = Table(path, _by_name(path, names, columns), numbers)
    if only is None:
        return table
    return Table(path, {name: table.columns[name] for name in only if name in table.columns}, numbers)


def check_names(table: Table, required: Sequence[str], optional: Sequence[str] = ()) -> None:
    """Raise InputError unless the columns are all of `required`, any of `optional` and nothing else."""
    if not len(table):
        raise InputError(f"{table.path} has no rows, must have at least one request")
    for name in table.columns:
        if name not in required and name not in optional:
            hint = nearest(name, [*required, *optional])
            raise InputError(f"{table.path} has a column {shown(name)}, which is unknown; {hint}")
    for name in required:
        if name not in table.columns:
            raise InputError(f"{table.path} has no column {name}, must have {', '.join(required)}")


def _by_name(path: str, names: list[str], columns: list[Column]) -> dict[str, Column]:
    for name in names:
        if names.count(name) > 1:
            raise InputError(f"{path} has the column {shown(name)} {names.count(name)} times, must be once")
    return dict(zip(names, columns, strict=True))


def _read_csv(path: str, most: int | None, only: Sequence[str] | None) -> Columns:
    """Return the columns as text. The header is read as a row, so that longer rows are errors."""
    try:
        frame = pd.read_csv(
            _text_file(path),
            header=None,
            dtype=str,
            na_filter=False,
            skip_blank_lines=False,
            skipinitialspace=True,
            encoding="utf-8-sig",
            nrows=None if most is None else most + 1,
        )
    except pd.errors.EmptyDataError:
        raise InputError(f"{path} has no header in line 1") from None
    except pd.errors.ParserError as error:
        why = str(error).strip().removeprefix("Error tokenizing data. C error: ")
        raise InputError(f"{path} is not a well-formed CSV file: {why}") from None
    cells = [frame[name].to_numpy(dtype=object) for name in frame.columns]
    blank = np.logical_and.reduce([column == "" for column in cells])
    if blank[0]:
        raise InputError(f"{path} has no header in line 1")
    kept = np.flatnonzero(~blank)
    kept = kept[kept > 0]
    names = [str(column[0]).strip() for column in cells]
    columns = [column[kept] for column in cells]
    for column in columns:
        column[column == ""] = None
    return names, columns, kept + 1


def _read_jsonl(path: str, most: int | None, only: Sequence[str] | None) -> Columns:
    """Return the columns of an object a line; a key that a line lacks is an empty cell."""
    decode = json.JSONDecoder(object_pairs_hook=_unique_keys).decode
    objects, rows = [], []
    with _text_file(path).open(encoding="utf-8-sig") as lines:
        for row, line in enumerate(lines, start=1):
            text = line.strip()
            if not text:
                continue
            try:
                value = decode(text)
            except (ValueError, RecursionError) as error:
                why = error.msg if isinstance(error, json.JSONDecodeError) else str(error)
                raise InputError(f"{path}, row {row} is not well-formed JSON: {why}") from None
            if not isinstance(value, dict):
                raise InputError(f"{path}, row {row} is {shown(text)}, must be a JSON object such as {{...}}")
            objects.append(value)
            rows.append(row)
            if len(rows) == most:
                break
    return *_by_key(objects), np.array(rows, dtype=np.int64)


def _read_json(path: str, most: int | None, only: Sequence[str] | None) -> Columns:
    """Return the columns of a list of objects; the row of an object is its place in the list, from 1."""
    decode = json.JSONDecoder(object_pairs_hook=_unique_keys).decode
    try:
        objects = decode(_text_file(path).read_text(encoding="utf-8-sig"))
    except UnicodeDecodeError:
        raise
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path} is not well-formed JSON: {error}") from None
    if not isinstance(objects, list) or not all(isinstance(value, dict) for value in objects):
        raise InputError(
            f"{path} is JSON of another kind, must be a list of objects such as [{{...}}, {{...}}]"
        )
    objects = objects[:most]
    return *_by_key(objects), np.arange(1, len(objects) + 1)


def _by_key(objects: list[dict[str, Any]]) -> tuple[list[str], list[Column]]:
    """Return the keys of objects in the order in which they come, and a column for each."""
    names = list(dict.fromkeys(name for value in objects for name in value))
    return names, [_objects([value.get(name) for value in objects]) for name in names]


def _read_parquet(path: str, most: int | None, only: Sequence[str] | None) -> Columns:
    file = Path(path).expanduser()
    wanted = None if only is None else [name for name in parquet_names(path) if name in only]
    try:
        frame = pd.read_parquet(file, columns=wanted, dtype_backend="numpy_nullable", engine="pyarrow")
    except OSError:
        raise
    except Exception as error:
        raise _not_parquet(path, error) from None
    frame = frame.head(len(frame) if most is None else most)
    columns = []
    for position in range(frame.shape[1]):
        column = frame.iloc[:, position]
        cells = column.to_numpy(dtype=object, copy=True)
        cells[column.isna().to_numpy(dtype=bool)] = None
        columns.append(cells)
    return [str(name) for name in frame.columns], columns, np.arange(1, len(frame) + 1)


def parquet_names(path: str) -> list[str]:
    """Return the names of a Parquet file's columns, without reading these. Raises InputError where there are none."""
    from pyarrow.parquet import read_schema

    try:
        return [str(name) for name in read_schema(Path(path).expanduser()).names]
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}") from None
    except Exception as error:
        raise _not_parquet(path, error) from None


def _not_parquet(path: str, error: Exception) -> InputError:
    """Return the sentence for what pyarrow could not make out, with the first line of what it says, if anything."""
    why = [*str(error).strip().splitlines(), type(error).__name__][0]
    return InputError(f"{path} is not a readable Parquet file: {why}")


def _text_file(path: str) -> Path:
    """Return the file, once its beginning looks like text."""
    file = Path(path).expanduser()
    with file.open("rb") as head:
        if b"\0" in head.read(65536):
            raise InputError(f"{path} is not text: it has zero bytes")
    return file


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"the key {next(name for name in names if names.count(name) > 1)!r} comes twice")
    return value


def _objects(cells: list[Any]) -> Column:
    """Return a column of any Python values; np.array would take lists for a second dimension."""
    column = np.empty(len(cells), dtype=object)
    column[:] = cells
    return column


Reader = Callable[[str, int | None, Sequence[str] | None], Columns]
READERS: dict[str, Reader] = {
    ".csv": _read_csv,
    ".parquet": _read_parquet,
    ".jsonl": _read_jsonl,
}
FOREIGN: dict[str, Reader] = {".txt": _read_csv, ".json": _read_json}
"""Suffixes that others have published such tables under; we write none."""
