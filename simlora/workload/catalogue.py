"""The catalogue of public traces: where each comes from, what it holds, how to get it, and which reader takes it."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from simlora.core.checks import shown
from simlora.core.errors import InputError, nearest
from simlora.core.files import expanded
from simlora.workload import file, sharegpt
from simlora.workload.cells import Cells, packed
from simlora.workload.chunks import parquet_names, suffix_of
from simlora.workload.table import Table, read_table

FOLDER = Path(__file__).resolve().parents[1] / "traces"
OWN = "file"
"""The format of our own traces, which is in no catalogue."""
CHUNK_BYTES = 1 << 20


@dataclass(frozen=True)
class DataFile:
    """A file as it is published. What is not published is None; `known` says where the rest is from."""

    name: str
    rows: int | None
    size_bytes: int | None
    sha256: str | None
    known: str


@dataclass(frozen=True)
class Column:
    """A column, its unit or kind, and what it holds; `a..b` are many that are numbered."""

    name: str
    unit: str
    holds: str
    optional: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of the columns that this stands for."""
        first, dots, last = self.name.partition("..")
        return tuple(map(str, range(int(first), int(last) + 1))) if dots else (self.name,)


@dataclass(frozen=True)
class Entry:
    """A public trace. `workload` is the choice that reads it, `sample` a few rows of our own making in its format."""

    name: str
    title: str
    origin: str
    home: str
    licence: str
    citation: str
    get: str
    workload: str
    sample: str
    adapters: str
    columns: tuple[Column, ...]
    files: tuple[DataFile, ...]
    schema_source: str
    uncertain: str

    @property
    def sample_path(self) -> Path:
        """Return where the sample lies."""
        return FOLDER / "samples" / self.sample

    def fits(self, names: Sequence[str]) -> bool:
        """Return whether a table with these columns can be of this trace."""
        required = {name for column in self.columns if not column.optional for name in column.names}
        known = required | {name for column in self.columns for name in column.names}
        return required <= set(names) <= known


def names() -> list[str]:
    """Return the names of all entries."""
    return sorted(path.stem for path in FOLDER.glob("*.yaml"))


def entry(name: str) -> Entry:
    """Return an entry. Raises InputError for a name that there is not."""
    if name not in names():
        raise InputError(f"there is no trace {shown(name)} in the catalogue; {nearest(name, names())}")
    tree: dict[str, Any] = yaml.safe_load((FOLDER / f"{name}.yaml").read_text(encoding="utf-8"))
    known = {field.name for field in fields(Entry)} - {"name"}
    if set(tree) != known:
        raise InputError(f"{name}.yaml must have the keys {', '.join(sorted(known))}, and no others")
    columns = tuple(Column(**column) for column in tree.pop("columns"))
    files = tuple(DataFile(**each) for each in tree.pop("files"))
    texts = {key: " ".join(str(value).split()) for key, value in tree.items()}
    return Entry(name=name, columns=columns, files=files, **texts)


def workload_of(name: str) -> str:
    """Return the workload that reads a format. Raises InputError for a format that there is not."""
    if name == OWN:
        return OWN
    if name not in names():
        raise InputError(f"there is no format {shown(name)}; {nearest(name, [OWN, *names()])}")
    return entry(name).workload


def format_of(path: str) -> str:
    """Return the format of a file, by its columns. Raises InputError where they fit none."""
    table = _head(path)
    found = set(table.columns)
    if set(file.REQUIRED) <= found:
        return OWN
    if set(sharegpt.LENGTHS) <= found <= {*sharegpt.LENGTHS, *sharegpt.OPTIONAL}:
        return "sharegpt"
    fitting = [each for each in map(entry, names()) if each.fits(list(table.columns))]
    if not fitting:
        columns = ", ".join(list(table.columns)[:8]) + (", ..." if len(found) > 8 else "")
        raise InputError(
            f"{path} has the columns {columns}, which are those of no trace that is known; name its format with "
            f"--format, one of {', '.join([OWN, *names()])}, or rename them to {', '.join(file.REQUIRED)}"
        )
    return _of_the_year(fitting, table).name


def _of_the_year(fitting: Sequence[Entry], table: Table) -> Entry:
    """Return the entry whose name has the year in which the first row begins; else the first: all are read alike."""
    first = " ".join(str(cells[0]) for cells in table.columns.values() if len(cells))
    return next((each for each in fitting if f"{each.name[-4:]}-" in first), fitting[0])


def _head(path: str) -> Table:
    """Return the file's columns with no more than one row of them, without reading much."""
    given = expanded(path)
    suffix = suffix_of(given)
    if suffix == ".parquet" and given.is_file():
        return _no_rows(path, parquet_names(path))
    if suffix == ".json" and given.is_file():
        # One text, of which there is no beginning; only ShareGPT is such a file.
        return _no_rows(path, sharegpt.COLUMNS)
    return read_table(path, rows=1, foreign=True)


def _no_rows(path: str, names: Sequence[str]) -> Table:
    """Return a table that has these columns and no row."""
    return Table(
        path, dict.fromkeys(names, Cells([packed(np.empty(0, dtype=object))])), np.empty(0, np.int64)
    )


def known_file(entry: Entry, path: Path) -> DataFile | None:
    """Return which published file this one is, byte for byte; None for another, or where no checksum is known."""
    sums = {each.sha256: each for each in entry.files if each.sha256}
    sizes = {each.size_bytes for each in entry.files if each.sha256}
    if not sums or (None not in sizes and path.stat().st_size not in sizes):
        return None
    return sums.get(sha256(path))


def sha256(path: Path) -> str:
    """Return the checksum of a file."""
    found = hashlib.sha256()
    with path.open("rb") as data:
        while chunk := data.read(CHUNK_BYTES):
            found.update(chunk)
    return found.hexdigest()
