"""What many runs say together: means over seeds with their intervals, and differences with the same random numbers."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pandas as pd

from simlora.core.errors import InputError, nearest
from simlora.metrics.saturation import LOADS
from simlora.sweeps.outcome import RAN
from simlora.sweeps.values import in_words

CONFIDENCE = 0.95
TELLING = ("makespan_s", "throughput_tps", "ttft_s.mean", "tpot_s.mean", "latency_s.mean")
"""Figures that no two runs share to the last digit unless they are the same run."""


def interval(values: Any, confidence: float = CONFIDENCE) -> tuple[float, float]:
    """Return the ends of the confidence interval of the mean, by Student's t; NaN of fewer than two values."""
    values = np.asarray(values, dtype=np.float64)
    values = values[~np.isnan(values)]
    if len(values) < 2:
        return math.nan, math.nan
    half = _student(confidence, len(values)) * values.std(ddof=1) / math.sqrt(len(values))
    return float(values.mean() - half), float(values.mean() + half)


@functools.cache
def _student(confidence: float, count: int) -> float:
    """Return how many standard errors the interval of the mean of so many values reaches to either side."""
    from scipy import stats  # half a second

    return float(stats.t.ppf(0.5 + confidence / 2, count - 1))


def means(table: pd.DataFrame, figure: str, by: Sequence[str]) -> pd.DataFrame:
    """Return a row for each combination of `by`, in the order of the table: mean, low, high, runs and load.

    `runs` are those that have the figure, `failed` those that did not run. `load` is the worst of a seed: `past` means
    that the queue grew as long as the run lasted, so that the mean says how long that was, and no more.
    """
    _known(table, figure, by)
    rows = []
    for key, own in _groups(table, by):
        values = own[figure].dropna()
        low, high = interval(values)
        worst = max(own["load"].dropna(), key=LOADS.index, default="")
        rows.append(
            {
                **dict(zip(by, key, strict=True)),
                "mean": float(values.mean()) if len(values) else math.nan,
                "low": low,
                "high": high,
                "runs": len(values),
                "failed": int((own["status"] != RAN).sum()),
                "load": worst,
            }
        )
    return pd.DataFrame(rows)


def _groups(table: pd.DataFrame, by: Sequence[str]) -> Iterable[tuple[Any, pd.DataFrame]]:
    """Return the rows of each combination of `by`, in the order of the table; all of them where there is no `by`."""
    return table.groupby(list(by), sort=False, dropna=False) if by else [((), table)]


def paired(table: pd.DataFrame, figure: str, between: str, base: Any, by: Sequence[str] = ()) -> pd.DataFrame:
    """Return how other values of `between` differ from `base`, seed by seed: mean difference, its interval, and ratio.

    Runs with the same seed have the same requests, so that most of what differs from seed to seed differs for both, and
    the interval of the difference is narrower than those of the means. `differs` is whether it excludes 0. Raises
    InputError if `base` is not in the table.
    """
    _known(table, figure, [between, *by])
    known = {in_words(value): value for value in table[between]}
    if in_words(base) not in known:
        raise InputError(f"{between} has no {base!r}; {nearest(in_words(base), known)}")
    base = known[in_words(base)]
    rows = []
    for key, own in _groups(table, by):
        of_seeds = own.pivot_table(index="seed", columns=between, values=figure, sort=False)
        for other in of_seeds.columns:
            if other == base or base not in of_seeds:
                continue
            both = of_seeds[[base, other]].dropna()
            difference = both[other] - both[base]
            low, high = interval(difference)
            rows.append(
                {
                    **dict(zip(by, key, strict=True)),
                    between: other,
                    "difference": float(difference.mean()),
                    "low": low,
                    "high": high,
                    "ratio": float(both[other].mean() / both[base].mean()) if len(both) else math.nan,
                    "seeds": len(both),
                    "differs": bool(low > 0 or high < 0),
                }
            )
    return pd.DataFrame(rows)


def echoes(table: pd.DataFrame, by: Sequence[str]) -> pd.Series[bool]:
    """Return which runs are what another seed of the same `by` did, to the last digit [runs].

    A trace that is read from a file has no chance in it: its seeds are one run, and say nothing of how sure that is.
    """
    told = [name for name in TELLING if name in table]
    if not told:
        return pd.Series(False, table.index)
    return table.duplicated([*by, *told]) & table[told].notna().any(axis=1)


def _known(table: pd.DataFrame, figure: str, columns: Sequence[str]) -> None:
    for column in (figure, *columns):
        if column not in table:
            raise InputError(f"the sweep has no {column}; {nearest(column, map(str, table.columns))}")
    if not pd.api.types.is_numeric_dtype(table[figure]):
        numbers = (str(name) for name in table if pd.api.types.is_numeric_dtype(table[name]))
        raise InputError(f"{figure} is no number; {nearest(figure, numbers)}")
