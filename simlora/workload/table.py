"""A table: the columns of a CSV, Parquet or JSONL file as they stand there, unchecked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from simlora.core.arrays import Counts, Ints
from simlora.core.checks import shown
from simlora.core.errors import InputError, nearest
from simlora.core.files import expanded
from simlora.core.trace import narrow
from simlora.workload.cells import Cells, packed
from simlora.workload.chunks import Chunk, Selection, known, reader_of

CHUNK_ROWS = 1 << 14
"""Read at a time: Python objects for all cells of a file would take ten times its bytes."""


@dataclass(frozen=True)
class Table:
    """Raw columns [rows] by name: text, numbers or lists; None is an empty cell.

    `rows` are the row numbers in the file: the line of a CSV or JSONL file (a CSV's header is
    line 1; no cell spans lines), the row of a Parquet file counted from 1.
    """

    path: str
    columns: dict[str, Cells]
    rows: Counts

    def __len__(self) -> int:
        return len(self.rows)

    def where(self, index: int) -> str:
        """Return `file, row n` for the row at `index`."""
        return f"{self.path}, row {self.rows[index]}"

    def at(self, index: Ints) -> Table:
        """Return all columns at some rows, which must ascend and keep their numbers."""
        return Table(
            self.path, {name: cells.at(index) for name, cells in self.columns.items()}, self.rows[index]
        )


def read_table(
    path: str, rows: int | None = None, only: Sequence[str] | None = None, foreign: bool = False
) -> Table:
    """Return the file's columns, read in chunks. Raises InputError where there is no such table, in one sentence.

    `rows`: no more than the first so many are read, and of the file little more; .json is read whole. `only`: of the
    columns those of these names that are there. `foreign`: suffixes of FOREIGN are read too.
    """
    file = expanded(path)
    reader = reader_of(file, foreign)
    if not file.exists():
        raise InputError(f"{path} does not exist")
    if file.is_dir():
        raise InputError(f"{path} is a folder, must be a file: {known(foreign)}")
    if reader is None:
        raise InputError(f"{path} has the suffix {shown(file.suffix)}, must be one of {known(foreign)}")
    try:
        if not file.stat().st_size:
            raise InputError(f"{path} is empty")
        chunks = list(reader(path, Selection(rows, only, CHUNK_ROWS)))
    except UnicodeDecodeError:
        raise InputError(f"{path} is not text in UTF-8") from None
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}") from None
    return joined(path, chunks, only)


def joined(path: str, chunks: list[Chunk], only: Sequence[str] | None) -> Table:
    """Return one table of all chunks; where one has no such column, its cells are empty."""
    found = dict.fromkeys(name for chunk in chunks for name in chunk.columns)
    names = found if only is None else [name for name in only if name in found]
    rows = np.concatenate([np.empty(0, dtype=np.int32), *(narrow(chunk.rows) for chunk in chunks)])
    columns = {
        name: Cells(
            [
                chunk.columns.get(name) or packed(np.full(len(chunk.rows), None, dtype=object))
                for chunk in chunks
            ]
        )
        for name in names
    }
    return Table(path, columns, rows)


def check_names(table: Table, required: Sequence[str], optional: Sequence[str] = ()) -> None:
    """Raise InputError unless the columns are all of `required`, any of `optional` and nothing else."""
    if not len(table):
        named = all(name in (*required, *optional) for name in table.columns)
        must = (
            "must have at least one request"
            if named
            else "its first line must name the columns, and is no request"
        )
        raise InputError(f"{table.path} has no rows, {must}")
    for name in table.columns:
        if name not in required and name not in optional:
            hint = nearest(name, [*required, *optional])
            raise InputError(f"{table.path} has a column {shown(name)}, which is unknown; {hint}")
    for name in required:
        if name not in table.columns:
            raise InputError(f"{table.path} has no column {name}, must have {', '.join(required)}")
