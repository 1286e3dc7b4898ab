"""requests.parquet of a run whose requests are too many for memory, written as they end."""

from __future__ import annotations

import shutil
import tempfile
import weakref
from pathlib import Path

import pandas as pd
import pyarrow.parquet as pq

from simlora.metrics.stored import StoredRequests
from simlora.results.files import cannot_write
from simlora.results.tables import FORMAT, REQUESTS, arrow_table


class RequestsFile:
    """A Parquet file in a folder of its own, which is removed once neither this object nor its rows are referenced.

    That folder is in `folder`, or where temporary files go. Raises InputError where it cannot be written.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = Path(tempfile.gettempdir()) if folder is None else folder
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            draft = Path(tempfile.mkdtemp(prefix=".writing-", dir=self._folder))
            self._remove = weakref.finalize(self, shutil.rmtree, draft, ignore_errors=True)
            self._path = draft / "requests.parquet"
            self._writer = pq.ParquetWriter(self._path, REQUESTS, **FORMAT)
        except OSError as error:
            raise cannot_write(self._folder, error) from error

    def write(self, rows: pd.DataFrame) -> None:
        """Write the next rows as a row group."""
        try:
            self._writer.write_table(arrow_table(rows, REQUESTS), row_group_size=len(rows))
        except OSError as error:
            self._writer.is_open = False  # or it would try again to write its end
            self._remove()
            raise cannot_write(self._folder, error) from error

    def close(self) -> StoredRequests:
        """Return what was written, after the last rows."""
        try:
            self._writer.close()
            return StoredRequests(self._path, keeper=self)
        except OSError as error:
            self._remove()
            raise cannot_write(self._folder, error) from error
