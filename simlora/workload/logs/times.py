"""When requests came: dates with and without zones, seconds to nanoseconds since 1970 or since some start."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from simlora.core.arrays import Floats
from simlora.workload.cells import Objects, objects
from simlora.workload.columns import NOT_SCALAR
from simlora.workload.logs.faults import Fault, of_rows
from simlora.workload.logs.guessing import UNITS, Source
from simlora.workload.table import Table

NONE, RELATIVE, ZONED, ZONELESS = 0, 1, 2, 3
EPOCHS = {4: "s", 5: "ms", 6: "us", 7: "ns"}
"""Kinds of times that count from 1970, with their units."""
STAMP_MAX_NS = 9.2e18
EPOCH_FROM = (1e8, 1e11, 1e14, 1e17, STAMP_MAX_NS)
"""Numbers from one of them to the next are those of one unit since 1970: of years from 1973 to 2261 in each."""
KINDS = {
    RELATIVE: "a number of seconds",
    ZONED: "a date with its zone",
    ZONELESS: "a date without a zone",
    **{kind: f"{unit} since 1970" for kind, unit in EPOCHS.items()},
}
DATE = r"\d{4}[-/]?\d\d[-/]?\d\d(?:[T ]\d\d.*)?"
ZONE = r"[T ]\d\d.*(?:[Zz]|[+-]\d\d(?::?\d\d)?)$"
COMMA = r"(?<=:\d\d),(?=\d)"
ACCESS_LOG = r"\[?\d\d/[A-Z][a-z]{2}/\d{4}:\d\d:\d\d:\d\d [+-]\d{4}\]?"
"""As nginx and Apache write them."""
NAMED_UNIT = re.compile(
    r"_(?:sec|seconds|ms|millis|us|micros|ns|nanos|s)$|(?<=[a-z])(?:Seconds|Ms|Millis|Us|Micros|Ns|Nanos)$"
)
MILLISECONDS = {"timestamp", "input_length", "output_length", "hash_ids"}
"""Columns of a Mooncake trace, whose small numbers are ms; others' are s."""
MUST = "a time: a date such as 2026-01-31T12:00:00Z, or a number"


@dataclass(frozen=True)
class Times:
    """Seconds since the first request [rows], what their column holds, and which cells hold something else.

    `first_ns` is when that request was, from 1970 or another start.
    """

    since_s: Floats
    unit: str
    faults: tuple[Fault, ...]
    first_ns: int = 0


def times(table: Table, source: Source) -> Times:
    """Return a column as times. Where its source has no unit, numbers have one by their size, and by their name."""
    name = source.column
    small = source.unit or unit_in(name) or ("ms" if MILLISECONDS.issubset(table.columns) else "s")
    read = table.columns[name].mapped(lambda cells: _read(cells, small, source.unit is not None))
    kinds, stamps_ns = read[:, 0], read[:, 1]
    counts = np.bincount(kinds, minlength=max(KINDS) + 1)
    counts[NONE] = 0
    usual = int(np.argmax(counts))
    faults = of_rows(table, name, kinds == NONE, MUST)
    for kind in np.flatnonzero(counts):
        if kind != usual:
            must = f"{KINDS[usual]}, as in {counts[usual]:,} rows; this is {KINDS[int(kind)]}"
            faults += of_rows(table, name, kinds == kind, must)
    fits = kinds == usual
    first_ns = stamps_ns[fits].min() if counts[usual] else 0
    says = {RELATIVE: f"{small} since some start", ZONED: "dates", ZONELESS: "dates without a zone: all UTC"}
    return Times(
        np.where(fits, stamps_ns - first_ns, 0) / 1e9,
        says.get(usual, KINDS.get(usual, "")),
        tuple(faults),
        int(first_ns),
    )


def unit_of(table: Table, source: Source) -> str:
    """Return what a column of times holds, in words."""
    return times(table, source).unit


def unit_in(name: str) -> str | None:
    """Return the unit that a column's name ends with."""
    found = NAMED_UNIT.search(name)
    if found is None:
        return None
    word = found.group().strip("_").lower()
    return {"sec": "s", "seconds": "s", "millis": "ms", "micros": "us", "nanos": "ns"}.get(word, word)


def numbers(cells: Objects) -> NDArray[Any]:
    """Return cells as int64 where all are whole, else as float64 with NaN for what is no number."""
    plain = objects([np.nan if isinstance(cell, NOT_SCALAR) else cell for cell in cells])
    try:
        found = pd.to_numeric(pd.Series(plain, dtype=object), errors="coerce")
    except OverflowError:  # a whole number of more digits than a float has
        plain = objects([np.nan if isinstance(cell, int) and abs(cell) > 1 << 62 else cell for cell in plain])
        found = pd.to_numeric(pd.Series(plain, dtype=object), errors="coerce")
    values = found.to_numpy()
    return values if values.dtype == np.int64 else values.astype(np.float64)


def _read(cells: Objects, small: str, is_given: bool) -> NDArray[np.int64]:
    """Return the kind of each cell, and its nanoseconds since 1970, or since another start [cells, 2].

    `small` is the unit of numbers that do not count from 1970; where it `is_given`, of all numbers.
    """
    values = numbers(cells)
    found = np.zeros((len(cells), 2), dtype=np.int64)
    ranges: list[tuple[int, str, float, float]] = [
        (RELATIVE, small, 0.0, STAMP_MAX_NS / UNITS[small] if is_given else EPOCH_FROM[0])
    ]
    if not is_given:
        ranges += zip(EPOCHS, EPOCHS.values(), EPOCH_FROM, EPOCH_FROM[1:], strict=False)
    for kind, unit, least, end in ranges:
        fits = (values >= least) & (values < end)
        found[fits, 0] = kind
        stamps = values[fits] * UNITS[unit]
        found[fits, 1] = stamps if values.dtype == np.int64 else np.rint(stamps)
    texts = [at for at in np.flatnonzero(found[:, 0] == NONE) if isinstance(cells[at], str | pd.Timestamp)]
    if texts:
        found[texts] = _dates([str(cells[at]) for at in texts])
    return found


def _dates(texts: list[str]) -> NDArray[np.int64]:
    """Return the kind of each text, and its nanoseconds since 1970 [texts, 2]."""
    dates = pd.Series(texts, dtype="str").str.strip().str.replace(r" ?UTC$", "Z", regex=True)
    dates = dates.str.replace(COMMA, ".", regex=True)
    stamps = pd.to_datetime(dates, format="ISO8601", errors="coerce", utc=True)
    access = dates.str.fullmatch(ACCESS_LOG).to_numpy(dtype=bool)
    if access.any():
        plain = dates[access].str.strip("[]")
        stamps[access] = pd.to_datetime(plain, format="%d/%b/%Y:%H:%M:%S %z", errors="coerce", utc=True)
    is_zoned = access | dates.str.contains(ZONE).to_numpy(dtype=bool)
    is_date = (access | dates.str.fullmatch(DATE).to_numpy(dtype=bool)) & stamps.notna().to_numpy(dtype=bool)
    kinds = np.where(is_date, np.where(is_zoned, ZONED, ZONELESS), NONE)
    return np.stack(
        [kinds, stamps.dt.tz_localize(None).to_numpy(dtype="datetime64[ns]").astype(np.int64)], axis=1
    )
