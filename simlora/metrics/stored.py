"""The requests of a run too large for memory: in a file, of which columns are read when they are asked for."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeAlias, overload

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

NAMES = ("adapter", "status", "reason")
"""Columns of text that repeats, read as categories."""
COUNTS = ("cached_tokens", "replica", "preemptions", "migrations")
"""Columns that are 32 bits wide in memory."""


class StoredRequests:
    """The rows of a requests.parquet, or those of them in `mask` [rows of the file].

    `stored[name]` reads a column, NaN where there is none, and `stored[mask]` gives the rows where it is true: as of a
    DataFrame. The file has to be there as long; `keeper` is kept as long, too.
    """

    def __init__(self, path: Path, keeper: object = None, mask: NDArray[np.bool_] | None = None) -> None:
        self.path, self._keeper, self._mask = path, keeper, mask
        self._status: pd.Series[Any] | None = None  # asked for again and again
        self._rows: int = pq.read_metadata(path).num_rows

    def __len__(self) -> int:
        return self._rows if self._mask is None else int(np.count_nonzero(self._mask))

    @overload
    def __getitem__(self, key: str) -> pd.Series[Any]: ...
    @overload
    def __getitem__(self, key: NDArray[np.bool_] | pd.Series[bool]) -> StoredRequests: ...
    def __getitem__(self, key: str | NDArray[np.bool_] | pd.Series[bool]) -> pd.Series[Any] | StoredRequests:
        if isinstance(key, str):
            return self._column(key)
        kept = np.asarray(key, dtype=np.bool_)
        if kept.all():
            return self
        if self._mask is not None:
            among, kept = kept, self._mask.copy()
            kept[kept] = among
        return StoredRequests(self.path, self._keeper, kept)

    @property
    def empty(self) -> bool:
        """Whether there is no row."""
        return not len(self)

    def _column(self, name: str) -> pd.Series[Any]:
        if name == "status" and self._status is not None:
            return self._status
        column = self._names(name) if name in NAMES else self._numbers(name)
        if self._mask is not None:
            column = column[self._mask].reset_index(drop=True)
        if name == "status":
            self._status = column
        return column

    def _numbers(self, name: str) -> pd.Series[Any]:
        with pq.ParquetFile(self.path) as file:
            kind = file.schema_arrow.field(name).type.to_pandas_dtype()
            values, filled = np.empty(self._rows, dtype=kind), 0
            for group in range(file.num_row_groups):  # so that a column is in memory once
                part = file.read_row_group(group, [name]).column(0).to_numpy()
                values[filled : filled + len(part)] = part
                filled += len(part)
        return pd.Series(values, copy=False)

    def _names(self, name: str) -> pd.Series[Any]:
        with pq.ParquetFile(self.path, read_dictionary=[name]) as file:
            parts = [file.read_row_group(group, [name]).column(0) for group in range(file.num_row_groups)]
        found: pd.Series[Any] = pa.chunked_array(
            [chunk for part in parts for chunk in part.chunks]
        ).to_pandas()
        return found

    def frame(self) -> pd.DataFrame:
        """Return all rows and columns as a DataFrame."""
        frame = pd.read_parquet(self.path).astype(dict.fromkeys(COUNTS, np.int32))
        return frame if self._mask is None else frame[self._mask]


Requests: TypeAlias = pd.DataFrame | StoredRequests
"""A row a request, in order of id, with the columns of requests.parquet."""
