"""Statistics of the time between tokens over all tokens, without one row per token.

A decode window of k steps with b sequences has k * b gaps, but needs only one call here, because its gaps
are an arithmetic progression. Calls go into a flat buffer; a full buffer is folded with numpy into a
sum and a histogram.

The sum is of whole numbers: each call counts in units of 2**-40 s, to the nearest one, so that the order of
calls does not matter.

Bins are taken from the bits of the number: the exponent and the first 10 bits of the mantissa of a float64
identify the bin. Every bin is therefore at most 2**-10 (0.098 %) of its lower edge wide, edges are exact,
and no logarithm is taken, so that the result is the same on every machine.
"""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np
from librt.vecs import extend, vec
from mypy_extensions import i64
from numpy.typing import NDArray

LOWEST_S = 1e-6
"""Shorter gaps are counted in the lowest bin."""
HIGHEST_S = 1e6
"""Longer gaps are counted in the highest bin."""

_SHIFT: Final = 52 - 10  # mantissa bits that a bin leaves out
_FIELDS: Final = 4  # first_s, slope_s, steps, weight
_BUFFER_ROWS: Final = 50_000
_CHUNK: Final = 1 << 20  # gaps expanded at once: 8 MB a column
_UNITS: Final = 1 << 40  # of the sum in a second: rounding a call changes it by less than 1e-12 s


def _bin(gaps_s: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return the bin of each gap `[gaps]`; the outermost bins also take the gaps beyond them."""
    bits = np.clip(gaps_s, LOWEST_S, HIGHEST_S).view(np.int64)
    return np.asarray((bits >> _SHIFT) - _FIRST, dtype=np.int64)


_FIRST = int(np.float64(LOWEST_S).view(np.int64) >> _SHIFT)
_BINS = int(np.float64(HIGHEST_S).view(np.int64) >> _SHIFT) - _FIRST + 1


def _edges(index: int) -> tuple[float, float]:
    """Return the lower and upper edge of a bin in seconds."""
    bits = np.array([index + _FIRST, index + _FIRST + 1], dtype=np.int64) << _SHIFT
    lower, upper = bits.view(np.float64)
    return float(lower), float(upper)


class TokenGaps:
    """Weighted mean and quantiles of the gaps between successive tokens.

    The mean is exact to 1e-12 s; a quantile is within 0.1 % of the exact one for gaps between 1 µs and 1e6 s.
    """

    __slots__ = (
        "_chunk",
        "_count",
        "_counts",
        "_filled",
        "_highest_s",
        "_lowest_s",
        "_most",
        "_rows",
        "_sum",
    )

    def __init__(self, buffer_rows: int = _BUFFER_ROWS, chunk: int = _CHUNK) -> None:
        self._most: i64 = buffer_rows * _FIELDS
        self._chunk = chunk
        self._rows: vec[float] = vec[float]([0.0] * _FIELDS)  # one after the other
        self._filled: i64 = 0  # numbers of the rows that are not folded yet; behind them is room
        self._counts: NDArray[np.int64] = np.zeros(_BINS, dtype=np.int64)
        self._count = 0
        self._sum = 0
        self._lowest_s = math.inf
        self._highest_s = -math.inf

    def add(self, gap_s: float, weight: int = 1) -> None:
        """Count one gap of `weight` sequences."""
        self.add_run(gap_s, 0.0, 1, weight)

    def add_run(self, first_s: float, slope_s: float, steps: int, weight: int = 1) -> None:
        """Count a decode window of `weight` sequences: gap i of 0 .. steps-1 is first_s + i * slope_s."""
        at, rows = self._filled, self._rows
        if at == len(rows):
            rows = self._rows = extend(rows, rows[:])
        rows[at], rows[at + 1], rows[at + 2], rows[at + 3] = first_s, slope_s, steps, weight
        at += _FIELDS
        self._filled = at
        if at >= self._most:
            self._fold()

    @property
    def count(self) -> int:
        """Number of gaps, counted per sequence."""
        self._fold()
        return self._count

    def mean(self) -> float:
        """Return the mean gap in seconds; NaN when there is none."""
        self._fold()
        return self._sum / (self._count * _UNITS) if self._count else math.nan

    def quantile(self, q: float) -> float:
        """Return the smallest gap that at least the share `q` of all gaps does not exceed (inverted CDF).

        Exact to the width of its bin; NaN when there is no gap. Raises ValueError for q outside 0..1.
        """
        if not 0.0 <= q <= 1.0:
            raise ValueError(f"quantile {q} is outside 0..1")
        self._fold()
        if not self._count:
            return math.nan
        nth = max(1, math.ceil(q * self._count))
        lower, upper = _edges(int(np.searchsorted(np.cumsum(self._counts), nth)))
        return min(max((lower + upper) / 2, self._lowest_s), self._highest_s)

    def share(self) -> tuple[Any, ...]:
        """Return all that was counted, for `add_share` of another one."""
        self._fold()
        return self._counts, self._count, self._sum, self._lowest_s, self._highest_s

    def add_share(self, share: tuple[Any, ...]) -> None:
        """Count what another one has counted."""
        counts, count, units, lowest_s, highest_s = share
        self._counts += counts
        self._count += count
        self._sum += units
        self._lowest_s, self._highest_s = min(self._lowest_s, lowest_s), max(self._highest_s, highest_s)

    def _fold(self) -> None:
        """Move the buffer into the sum and the histogram."""
        if not self._filled:
            return
        rows = np.asarray(self._rows, dtype=np.float64)[: self._filled].reshape(-1, _FIELDS)
        self._filled = 0
        first_s, slope_s, steps, weight = np.ascontiguousarray(rows[(rows[:, 2:] > 0).all(axis=1)].T)
        if not len(first_s):
            return
        last_s = first_s + (steps - 1) * slope_s
        self._count += int((steps * weight).sum())
        sums_s = weight * steps * (first_s + last_s) / 2
        whole_s = np.floor(sums_s)
        units = np.rint((sums_s - whole_s) * _UNITS)
        self._sum += int(whole_s.astype(np.int64).sum()) * _UNITS + int(units.astype(np.int64).sum())
        self._lowest_s = min(self._lowest_s, float(first_s.min()), float(last_s.min()))
        self._highest_s = max(self._highest_s, float(first_s.max()), float(last_s.max()))
        flat = _bin(first_s) == _bin(last_s)  # most short windows stay within one bin
        self._tally(first_s[flat], (steps * weight)[flat])
        self._tally_slopes(first_s[~flat], slope_s[~flat], steps[~flat], weight[~flat])

    def _tally(self, gaps_s: NDArray[np.float64], counts: NDArray[np.float64]) -> None:
        tally = np.bincount(_bin(gaps_s), weights=counts, minlength=_BINS)
        self._counts += tally.astype(np.int64)

    def _tally_slopes(
        self,
        first_s: NDArray[np.float64],
        slope_s: NDArray[np.float64],
        steps: NDArray[np.float64],
        weight: NDArray[np.float64],
    ) -> None:
        """Count decode windows `[windows]` gap by gap, so many gaps at a time."""
        ends = np.cumsum(steps.astype(np.int64))
        starts = ends - steps.astype(np.int64)
        for begin in range(0, int(ends[-1]) if len(ends) else 0, self._chunk):
            end = min(begin + self._chunk, int(ends[-1]))
            some = slice(np.searchsorted(ends, begin, "right"), np.searchsorted(starts, end, "left"))
            repeats = np.minimum(ends[some], end) - np.maximum(starts[some], begin)
            step = np.arange(begin, end) - np.repeat(starts[some], repeats)
            gaps_s = np.repeat(first_s[some], repeats) + step * np.repeat(slope_s[some], repeats)
            self._tally(gaps_s, np.repeat(weight[some], repeats))
