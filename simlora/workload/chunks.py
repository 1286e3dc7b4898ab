"""Chunks of a file: the rows of a CSV, Parquet or JSONL table, so many at a time, unchecked."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Any, TextIO

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from simlora.core.arrays import Ints
from simlora.core.checks import shown
from simlora.core.errors import InputError
from simlora.core.files import expanded
from simlora.workload.cells import Piece, coded, objects, packed

COMPRESSION = {".gz": "gzip", ".zst": "zstd"}
"""Of text, by the suffix that comes last then."""
HEAD_BYTES = 1 << 16
"""Of a text, in which zero bytes are looked for."""


@dataclass(frozen=True, slots=True)
class Selection:
    """What is asked of a file: no more than the first `most` rows, of the columns those of `only`; None: all.

    A chunk has `chunk_rows` rows at most.
    """

    most: int | None
    only: Sequence[str] | None
    chunk_rows: int

    def has(self, name: str) -> bool:
        """Return whether a column is asked for."""
        return self.only is None or name in self.only


@dataclass(frozen=True, slots=True)
class Chunk:
    """Columns [rows] by name, and their row numbers in the file [rows]."""

    columns: dict[str, Piece]
    rows: Ints


def _read_csv(path: str, selection: Selection) -> Iterator[Chunk]:
    """Yield the columns as text. The header is read as a row, so that longer rows are errors."""
    try:
        with open_text(path, newline="") as text:
            frames = pd.read_csv(
                text,
                header=None,
                dtype=str,
                na_filter=False,
                skip_blank_lines=False,
                skipinitialspace=True,
                low_memory=False,  # which would make a chunk of chunks
                nrows=None if selection.most is None else selection.most + 1,
                chunksize=selection.chunk_rows,
            )
            header = frames.get_chunk(1)
            names = [str(cell).strip() for cell in header.iloc[0]]
            if not any(header.iloc[0]):
                raise InputError(f"{path} has no header in line 1")
            _once(path, names)
            for frame in chain([header[:0]], frames):
                cells = [pa.array(frame[at].array) for at in frame]
                empty = [pc.equal(column, "") for column in cells]
                kept = np.flatnonzero(~np.logical_and.reduce([np.asarray(column) for column in empty]))
                columns = {
                    name: coded(pc.if_else(empty[at], None, cells[at]).take(kept))
                    for at, name in enumerate(names)
                    if selection.has(name)
                }
                yield Chunk(columns, frame.index.to_numpy()[kept] + 1)
    except pd.errors.EmptyDataError:
        raise InputError(f"{path} has no header in line 1") from None
    except pd.errors.ParserError as error:
        why = str(error).strip().removeprefix("Error tokenizing data. C error: ")
        raise InputError(f"{path} is not a well-formed CSV file: {why}") from None


def _read_jsonl(path: str, selection: Selection) -> Iterator[Chunk]:
    """Yield the columns of an object a line; a key that a line lacks is an empty cell."""
    with open_text(path) as text:
        found = islice(_objects(path, text), selection.most)
        while chunk := list(islice(found, selection.chunk_rows)):
            rows, values = zip(*chunk, strict=True)
            yield _by_key(values, np.array(rows, dtype=np.int64), selection)


def _objects(path: str, lines: TextIO) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the number and the object of each line that is not blank."""
    decode = json.JSONDecoder(object_pairs_hook=_unique_keys).decode
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
        yield row, value


def _read_json(path: str, selection: Selection) -> Iterator[Chunk]:
    """Yield the columns of a list of objects, in one chunk; the row of an object is its place in the list, from 1."""
    decode = json.JSONDecoder(object_pairs_hook=_unique_keys).decode
    with open_text(path) as text:
        try:
            values = decode(text.read())
        except UnicodeDecodeError:
            raise
        except (ValueError, RecursionError) as error:
            raise InputError(f"{path} is not well-formed JSON: {error}") from None
    if not isinstance(values, list) or not all(isinstance(value, dict) for value in values):
        raise InputError(
            f"{path} is JSON of another kind, must be a list of objects such as [{{...}}, {{...}}]"
        )
    values = values[: selection.most]
    yield _by_key(values, np.arange(1, len(values) + 1), selection)


def _by_key(values: Sequence[dict[str, Any]], rows: Ints, selection: Selection) -> Chunk:
    """Return the keys of objects in the order in which they come, and a column for each."""
    names = filter(selection.has, dict.fromkeys(chain.from_iterable(values)))
    return Chunk({name: packed(objects([value.get(name) for value in values])) for name in names}, rows)


def read_parquet(path: str, selection: Selection) -> Iterator[Chunk]:
    with _parquet(path) as file:
        names = _names(file)
        _once(path, names)
        wanted, row = list(filter(selection.has, names)), 0
        yield Chunk({name: packed(objects([])) for name in wanted}, np.arange(0))
        for batch in file.iter_batches(selection.chunk_rows, columns=wanted):
            batch = batch[: None if selection.most is None else selection.most - row]
            columns = {name: _of_arrow(batch.column(name)) for name in wanted}
            yield Chunk(columns, np.arange(row, row + len(batch)) + 1)
            row += len(batch)
            if row == selection.most:
                return


def _of_arrow(cells: Any) -> Piece:
    """Return the cells of an Arrow array; one is empty where it is null or no number."""
    if pa.types.is_dictionary(cells.type):
        cells = cells.dictionary_decode()
    kind = cells.type
    if kind in (pa.float32(), pa.float64()):
        return coded(pc.if_else(pc.is_nan(cells), None, cells))
    if kind in (pa.string(), pa.large_string()) or pa.types.is_integer(kind):
        return coded(cells)
    column = cells.to_pandas()
    found = column.to_numpy(dtype=object, copy=True)
    found[column.isna().to_numpy(dtype=bool)] = None
    return packed(found)


def parquet_names(path: str) -> list[str]:
    """Return the names of a Parquet file's columns, without reading these. Raises InputError where there are none."""
    try:
        with _parquet(path) as file:
            return _names(file)
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}") from None


def _names(file: Any) -> list[str]:
    """Return the names of the columns but for those that pandas has written as an index."""
    index = (file.schema_arrow.pandas_metadata or {}).get("index_columns", ())
    return [name for name in file.schema_arrow.names if name not in index]


@contextmanager
def _parquet(path: str) -> Iterator[Any]:
    """Give an open Parquet file. Raises InputError where pyarrow cannot make it out, with the first line it says."""
    from pyarrow.parquet import ParquetFile

    try:
        with ParquetFile(expanded(path)) as file:
            yield file
    except (InputError, OSError):
        raise
    except Exception as error:
        why = [*str(error).strip().splitlines(), type(error).__name__][0]
        raise InputError(f"{path} is not a readable Parquet file: {why}") from None


@contextmanager
def open_text(path: str, newline: str | None = None) -> Iterator[TextIO]:
    """Give an open text, decompressed, once its beginning looks like text."""
    file = expanded(path)
    compression = COMPRESSION.get(file.suffix.lower())

    def stream() -> Any:
        return pa.input_stream(str(file), compression=compression) if compression else file.open("rb")

    with stream() as data:
        head = data.read(HEAD_BYTES)
    if not head:
        raise InputError(f"{path} is empty")
    if b"\0" in head:
        raise InputError(f"{path} is not text: it has zero bytes")
    with io.TextIOWrapper(stream(), encoding="utf-8-sig", newline=newline) as text:
        yield text


def _once(path: str, names: list[str]) -> None:
    """Raise InputError unless each column has a name of its own."""
    for name in names:
        if names.count(name) > 1:
            raise InputError(f"{path} has the column {shown(name)} {names.count(name)} times, must be once")


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"the key {next(name for name in names if names.count(name) > 1)!r} comes twice")
    return value


Reader = Callable[[str, Selection], Iterator[Chunk]]
READERS: dict[str, Reader] = {
    ".csv": _read_csv,
    ".parquet": read_parquet,
    ".jsonl": _read_jsonl,
}
FOREIGN: dict[str, Reader] = {".txt": _read_csv, ".json": _read_json}
"""Suffixes that others have published such tables under; we write none."""


def known(foreign: bool = False) -> str:
    """Return, for a message, which files can be read."""
    suffixes = ", ".join(READERS | FOREIGN if foreign else READERS)
    return f"{suffixes}; text also compressed, such as .csv.gz or .jsonl.zst"


def suffix_of(path: str | Path) -> str:
    """Return the suffix that says what is in a file; that of compressed text is .csv, not .gz."""
    file = Path(path)
    last, inner = file.suffix.lower(), Path(file.stem).suffix.lower()
    return inner if last in COMPRESSION and inner != ".parquet" else last


def reader_of(path: str | Path, foreign: bool = False) -> Reader | None:
    """Return what reads a file, None if nothing does."""
    return (READERS | FOREIGN if foreign else READERS).get(suffix_of(path))
