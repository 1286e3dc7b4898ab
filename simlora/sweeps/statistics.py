"""What many runs say together: means over seeds with their intervals, and differences with the same random numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from simlora.core.errors import InputError, nearest

CONFIDENCE = 0.95
LOADS = ("below", "near", "past", "unknown")


def interval(values: Any, confidence: float = CONFIDENCE) -> tuple[float, float]:
    """Return the ends of the confidence interval of the mean, by Student's t; NaN of fewer than two values."""
    values = np.asarray(values, dtype=np.float64)
    values = values[~np.isnan(values)]
    if len(values) < 2:
        return math.nan, math.nan
    from scipy import stats  # half a second

    half = stats.t.ppf(0.5 + confidence / 2, len(values) - 1) * values.std(ddof=1) / math.sqrt(len(values))
    return float(values.mean() - half), float(values.mean() + half)


def means(table: pd.DataFrame, figure: str, by: Sequence[str]) -> pd.DataFrame:
    """Return a row for each combination of `by`, in the order of the table: mean, low, high, runs and load.

    `runs` are those that have the figure, `failed` those that did not run. `load` is the worst of a seed: `past` means
    that the queue grew as long as the run lasted, so that the mean says how long that was, and no more.
    """
    _known(table, [figure, *by])
    rows = []
    for key, own in table.groupby(list(by), sort=False, dropna=False) if by else [((), table)]:
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
                "failed": int((own["status"] != "ran").sum()),
                "load": worst,
            }
        )
    return pd.DataFrame(rows)


def paired(table: pd.DataFrame, figure: str, between: str, base: Any, by: Sequence[str] = ()) -> pd.DataFrame:
    """Return how other values of `between` differ from `base`, seed by seed: mean difference, its interval, and ratio.

    Runs with the same seed have the same requests, so that most of what differs from seed to seed differs for both, and
    the interval of the difference is narrower than those of the means. `differs` is whether it excludes 0. Raises
    InputError if `base` is not in the table.
    """
    _known(table, [figure, between, *by])
    if base not in set(table[between]):
        raise InputError(
            f"{between} has no {base!r}; {nearest(str(base), map(str, table[between].unique()))}"
        )
    rows = []
    for key, own in table.groupby(list(by), sort=False, dropna=False) if by else [((), table)]:
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


def _known(table: pd.DataFrame, columns: Sequence[str]) -> None:
    for column in columns:
        if column not in table:
            raise InputError(f"the sweep has no {column}; {nearest(column, map(str, table.columns))}")
