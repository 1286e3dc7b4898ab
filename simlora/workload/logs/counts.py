"""Whole numbers of a log's column."""

from __future__ import annotations

import numpy as np

from simlora.core.arrays import Ints
from simlora.workload.cells import Objects
from simlora.workload.columns import Flags
from simlora.workload.logs.faults import Fault, of_rows
from simlora.workload.logs.times import numbers
from simlora.workload.table import Table


def counts(
    table: Table, name: str, must: str, most: int, faults: list[Fault], among: Flags | None = None
) -> Ints:
    """Return whole numbers from 1 to `most` [rows]; rows not `among` are not looked at. A wrong one is 0."""
    if not len(table):
        return np.zeros(0, dtype=np.int64)

    def fitting(cells: Objects) -> Ints:
        values = numbers(cells)
        fits = (values >= 1) & (values <= most) & (values == np.floor(values))
        return np.where(fits, values, 0).astype(np.int64)

    found = table.columns[name].mapped(fitting)
    faults += of_rows(table, name, found == 0 if among is None else (found == 0) & among, must)
    return found
