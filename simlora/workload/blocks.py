"""Hashes of blocks: what a prompt begins with, as a row of a table says it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from simlora.workload.cells import objects
from simlora.workload.columns import refuse
from simlora.workload.table import Table


def block_hashes(table: Table, name: str) -> list[tuple[int, ...]]:
    """Return the column's hashes, none where a cell is empty."""
    cells = table.columns[name].mapped(lambda cells: objects([_whole_list(cell) for cell in cells]))
    hashes: list[tuple[int, ...] | None] = cells.tolist()
    bad = np.array([value is None for value in hashes])
    refuse(table, name, bad, "whole numbers, apart by spaces or as a list")
    return [value or () for value in hashes]


def check_prefixes(table: Table, name: str, hashes: Sequence[tuple[int, ...]]) -> None:
    """Raise InputError unless a hash always lies behind the same one: it stands for all the tokens before it too."""
    before: dict[int, int | None] = {}
    twisted = np.zeros(len(hashes), dtype=np.bool_)
    for row, each in enumerate(hashes):
        previous: int | None = None
        for value in each:
            if before.setdefault(value, previous) != previous:
                twisted[row] = True
            previous = value
    refuse(table, name, twisted, "of prefixes: behind equal numbers equal numbers must lie")


def of_prefixes(hashes: Sequence[tuple[int, ...]]) -> list[tuple[int, ...]]:
    """Return hashes of prefixes for hashes of blocks by themselves, numbered from 0 as they come.

    Two are equal where the block and all before it are. Hashes that are of prefixes already are only renumbered.
    """
    numbers: dict[tuple[int, int], int] = {}
    found = []
    for each in hashes:
        own, last = [], -1
        for value in each:
            last = numbers.setdefault((last, value), len(numbers))
            own.append(last)
        found.append(tuple(own))
    return found


def _whole_list(cell: Any) -> tuple[int, ...] | None:
    """Return the whole numbers of one cell; None where it holds something else."""
    if cell is None:
        return ()
    if isinstance(cell, str):
        cell = cell.strip().removeprefix("[").removesuffix("]").replace(",", " ").split()
    elif not isinstance(cell, (list, np.ndarray)) or any(
        isinstance(value, bool) or not isinstance(value, (int, np.integer)) for value in cell
    ):
        return None
    try:
        return tuple(map(int, cell))
    except ValueError:
        return None
