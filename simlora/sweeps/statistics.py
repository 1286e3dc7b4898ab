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
from simlora.metrics.slo import ATTAINMENT
from simlora.sweeps.outcome import RAN
from simlora.sweeps.values import in_words

CONFIDENCE = 0.95
SUBMITTED = "requests.submitted"
TELLING = ("makespan_s", "throughput_tps", "ttft_s.mean", "tpot_s.mean", "latency_s.mean")
"""Figures that no two runs share to the last digit unless they are the same run."""


def interval(values: Any, confidence: float = CONFIDENCE) -> tuple[float, float]:
    """Return the ends of the confidence interval of the mean; NaN of fewer than two values.

    Student's t, corrected for the skewness of the values: of times most runs have short ones, and a few long ones.
    Without skewness it is Student's. Source: Hall, J. R. Stat. Soc. B 54 (1992), 221-228, the cubic transformation.
    """
    values = np.asarray(values, dtype=np.float64)
    values = values[~np.isnan(values)]
    count = len(values)
    if count < 2:
        return math.nan, math.nan
    mean, spread = values.mean(), values.std(ddof=1)
    if spread <= 1e-14 * abs(mean):
        return float(mean), float(mean)
    skewness = float(np.mean(((values - mean) / spread) ** 3))
    reach = _student(confidence, count) / math.sqrt(count)
    low, high = (_unskewed(end - skewness / (6 * count), skewness) for end in (reach, -reach))
    return float(mean - low * spread), float(mean - high * spread)


def _unskewed(value: float, skewness: float) -> float:
    """Return x with x + s x² / 3 + s² x³ / 27 equal to the value, where s is the skewness."""
    if abs(skewness * value) < 1e-6:
        return value
    return 3 / skewness * (math.cbrt(1 + skewness * value) - 1)


def interval_of_share(shares: Any, counts: Any, confidence: float = CONFIDENCE) -> tuple[float, float]:
    """Return the ends of the confidence interval of a share of `counts` requests a run; NaN of fewer than two runs.

    Clopper and Pearson's, of as many independent requests as would vary as much as the runs do: requests of one run
    wait for each other. Source: Korn and Graubard, Survey Methodology 24 (1998), 193-201.
    """
    shares, counts = np.asarray(shares, dtype=np.float64), np.asarray(counts, dtype=np.float64)
    known = ~np.isnan(shares)
    shares, counts = shares[known], counts[known]
    runs = len(shares)
    if runs < 2:
        return math.nan, math.nan
    from scipy import stats

    share, variance = shares.mean(), shares.var(ddof=1) / runs
    total = counts.sum()
    alike = min(share * (1 - share) / variance, total) if variance > 0 else total
    alike *= (stats.norm.ppf(0.5 + confidence / 2) / _student(confidence, runs)) ** 2
    met, tail = share * alike, 0.5 - confidence / 2
    low = stats.beta.ppf(tail, met, alike - met + 1) if share > 0 else 0.0
    high = stats.beta.ppf(1 - tail, met + 1, alike - met) if share < 1 else 1.0
    return float(low), float(high)


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
        share = figure == ATTAINMENT and SUBMITTED in own
        low, high = interval_of_share(own[figure], own[SUBMITTED]) if share else interval(values)
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
