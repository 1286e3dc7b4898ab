"""The cells of a column, as they stand in a file."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pandas.api.types import infer_dtype

from simlora.core.arrays import Counts, Ints

Objects = NDArray[np.object_]
Kind = TypeVar("Kind", bound=np.generic)
ARROW = {
    "string": pa.large_string(),
    "empty": pa.large_string(),
    "integer": pa.int64(),
    "floating": pa.float64(),
}
"""What holds cells that are all of a kind, as pandas calls it."""


@dataclass(frozen=True, slots=True)
class Piece:
    """Some cells of a column: `values`, or where there are `codes` [rows], the values that these number."""

    values: Any
    codes: Counts | None = None

    def __len__(self) -> int:
        return len(self.values if self.codes is None else self.codes)

    def distinct(self) -> Objects:
        """Return the values as Python objects; None is an empty cell."""
        return self.values if self.codes is None else objects(self.values.to_pylist())

    def spread(self, each: NDArray[Kind]) -> NDArray[Kind]:
        """Return what there is for each of the values [distinct] for each of the cells [rows]."""
        return each if self.codes is None else each[self.codes]

    def at(self, index: Ints) -> Piece:
        """Return some of the cells."""
        if self.codes is None:
            return Piece(self.values[index])
        return Piece(self.values, self.codes[index])


class Cells:
    """The cells [rows] of a column: text, numbers, lists, or None where one is empty.

    They lie in pieces, one a chunk of the file. A piece of text, or of numbers of one kind, has each value once, in
    Arrow, and 1, 2 or 4 bytes a row that say which; other cells are Python objects.
    """

    def __init__(self, pieces: Sequence[Piece]) -> None:
        self._pieces = pieces
        lengths = [len(piece) for piece in pieces]
        self._ends = np.cumsum(lengths)
        self._starts = self._ends - lengths

    def __len__(self) -> int:
        return int(self._ends[-1])

    def __getitem__(self, row: int) -> Any:
        at = int(np.searchsorted(self._ends, row, side="right"))
        piece = self._pieces[at].at(np.array([row - self._starts[at]]))
        return piece.spread(piece.distinct())[0]

    def __iter__(self) -> Iterator[Any]:
        for piece in self._pieces:
            yield from piece.spread(piece.distinct())

    def mapped(self, function: Callable[[Objects], NDArray[Kind]]) -> NDArray[Kind]:
        """Return what `function` makes of each cell [rows]; it is given arrays of them, without most repeats."""
        return np.concatenate([piece.spread(function(piece.distinct())) for piece in self._pieces])

    def at(self, rows: Ints) -> Cells:
        """Return the cells of some rows, which must ascend."""
        parts = np.split(rows, np.searchsorted(rows, self._ends[:-1]))
        found = zip(self._pieces, parts, self._starts, strict=True)
        return Cells([piece.at(part - start) for piece, part, start in found])


def packed(cells: Objects) -> Piece:
    """Return cells in little memory, where they are all text, or numbers of one kind."""
    kind = ARROW.get(infer_dtype(cells, skipna=True))
    if kind is not None:
        try:
            return coded(pa.array(cells, kind, from_pandas=False))
        except (pa.ArrowException, OverflowError, UnicodeEncodeError):
            pass  # such as 10 ** 400, or half a character
    return Piece(cells)


def coded(cells: Any) -> Piece:
    """Return the cells of an Arrow array with each value once."""
    found = cells.dictionary_encode("encode")
    codes = found.indices.to_numpy()
    return Piece(found.dictionary, codes.astype(np.min_scalar_type(len(found.dictionary))))


def objects(cells: Sequence[Any]) -> Objects:
    """Return an array of any Python values; np.array would take lists for a second dimension."""
    found = np.empty(len(cells), dtype=object)
    found[:] = cells
    return found
