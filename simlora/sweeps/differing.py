"""What configurations differ in: what tells them apart, and what a reader should know besides."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd

from simlora.report.format import ABSENT, plain
from simlora.sweeps.gathering import FIRST, SOURCE

PREFERRED = ("workload.rate_rps", "workload.arrivals.rate_rps", "speedup")
"""Of the numbers that vary, what curves are drawn over."""
ASKED = ("workload", "speedup", "window", "until_s", "cluster")
"""Groups of keys that say what is asked of systems, and how much there is to serve it; `sides` looks at the SLO."""
MOST_KEYS = 6
"""Keys, or lines, that are named in a notice."""


def varying(table: pd.DataFrame, keys: Sequence[str]) -> list[str]:
    """Return the keys that tell configurations apart, no more than are needed for that.

    A system that sets others goes before those it sets, names go before numbers.
    """
    words = [key for key in keys if not is_numeric(table[key])]
    order = dict.fromkeys([*(key for key in (SOURCE, *FIRST, *PREFERRED) if key in keys), *words, *keys])
    found, groups = [], pd.Series(0, table.index)
    for key in order:
        finer = pd.Series(list(zip(groups, table[key].map(_plain), strict=True)), table.index)
        codes = pd.Series(pd.factorize(finer)[0], table.index)
        if codes.max() > groups.max():
            found.append(key)
            groups = codes
    return found


def _plain(value: Any) -> str:
    """Return a value as a reader would write it, the same for 1 and 1.0, and for all that is not there."""
    return ABSENT if value is None or value != value else plain(value)  # NaN


def is_numeric(column: pd.Series[Any]) -> bool:
    """Whether every value of a column is a number; true and false are none."""
    plain = not column.map(lambda value: isinstance(value, bool | str)).any()
    return plain and bool(pd.to_numeric(column, errors="coerce").notna().all())


def axis_of(table: pd.DataFrame, vary: Sequence[str]) -> str | None:
    """Return the key that curves are drawn over: a rate, or the first number that varies; None if none does."""
    numbers = [key for key in vary if is_numeric(table[key])]
    return next((key for key in PREFERRED if key in numbers), numbers[0] if numbers else None)


def label_of(names: Sequence[str], values: Sequence[Any]) -> str:
    """Return what a line is called: names as they are, of numbers also what they are of."""
    words = [
        _plain(value) if isinstance(value, str) else f"{name.rpartition('.')[2]}={_plain(value)}"
        for name, value in zip(names, values, strict=True)
    ]
    return ", ".join(words) or "all runs"


def averaged(axis: str | None, names: Sequence[str], vary: Sequence[str]) -> list[str]:
    """Return what is to be said of keys that differ within a line."""
    others = [key for key in vary if key != axis and key not in names]
    return [f"Runs that differ in {', '.join(others)} are averaged, too."] if others else []


def unlike(
    table: pd.DataFrame, keys: Sequence[str], axis: str | None, names: Sequence[str], vary: Sequence[str]
) -> list[str]:
    """Return what else differs of what is asked of systems, not of how they work."""
    named = {axis, *names, *vary}
    asked = [key for key in keys if key.partition(".")[0] in ASKED and key not in named and key not in FIRST]
    singles = table[table["folder"] != ""]  # of a sweep, what it does not name is not known
    others = [key for key in asked if singles[key].map(_plain).nunique() > 1]
    if not others:
        return []
    more = f" and {len(others) - MOST_KEYS} more" if len(others) > MOST_KEYS else ""
    return [
        f"These runs also differ in {', '.join(others[:MOST_KEYS])}{more}, which their names here do not say."
    ]


def alike(again: pd.DataFrame) -> list[str]:
    """Return what is to be said of runs that are left out, as they are what another seed did."""
    if again.empty:
        return []
    return [
        f"{len(again):,} runs did the very same as the first seed of their configuration, to the last digit, and count "
        "as one with it: nothing in them is drawn, as where a trace was read from a file. One run has no interval. "
        "workload.resample_block_s=60 draws such a trace anew with each seed, of its own blocks of 60 s."
    ]
