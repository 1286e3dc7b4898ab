"""What many runs say together: figures over seeds with their intervals, and differences with the same random numbers.

Over seeds a percentile is summed up by its median, and every other figure by its mean. A few runs in a hundred have a
burst that makes a 99th percentile twenty times as long: the mean over seeds is then decided by whether such a run is
among them, and no interval can say so where none is (`docs/modelled.md`).
"""

from __future__ import annotations

import functools
import math
import re
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
FEWEST_ORDERED = 5
"""Values from which on their order alone says where the median is."""
PERCENTILE, MEAN_TIME = re.compile(r"\.p\d+$"), re.compile(r"_s\.mean$")
INDEPENDENT = "load.independent_requests"
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
    apart = (values - mean) / spread
    skewness = float((apart * apart * apart).sum()) * count / ((count - 1) * max(count - 2, 1))
    reach = _student(confidence, count) / math.sqrt(count)
    low, high = (_unskewed(end - skewness / (6 * count), skewness) for end in (reach, -reach))
    return float(mean - low * spread), float(mean - high * spread)


def _unskewed(value: float, skewness: float) -> float:
    """Return x with x + s x² / 3 + s² x³ / 27 equal to the value, where s is the skewness."""
    if abs(skewness * value) < 1e-6:
        return value
    return 3 / skewness * (math.cbrt(1 + skewness * value) - 1)


def interval_of_times(times: Any, confidence: float = CONFIDENCE) -> tuple[float, float]:
    """Return the ends of the confidence interval of the mean of positive times; NaN of fewer than two.

    From the lower to the higher end of `interval` and of Student's on the logarithm. Few runs have the long bursts that
    decide the mean, and the skewness of five runs without one does not tell of them: neither of the two alone holds the
    mean of S-LoRA's TTFT at 0.6 of its capacity nine times in ten (`python -m experiments.coverage intervals`: both).
    """
    times = np.asarray(times, dtype=np.float64)
    times = times[~np.isnan(times)]
    low, high = interval(times, confidence)
    if math.isnan(low) or times.min() <= 0:
        return low, high
    mean, count = float(times.mean()), len(times)
    reach = _student(confidence, count) * float(times.std(ddof=1)) / (mean * math.sqrt(count))
    return min(low, mean * math.exp(-reach)), max(high, mean * math.exp(reach))


def interval_of_share(shares: Any, counts: Any, confidence: float = CONFIDENCE) -> tuple[float, float]:
    """Return the ends of the confidence interval of a share of requests; NaN of fewer than two runs.

    Clopper and Pearson's, of as many independent requests as would vary as much as the runs do: requests of one run
    wait for each other. Where all runs are alike they are the `counts` of independent requests, a number a run. Source:
    Korn and Graubard, Survey Methodology 24 (1998), 193-201.
    """
    shares, counts = np.asarray(shares, dtype=np.float64), np.asarray(counts, dtype=np.float64)
    known = ~np.isnan(shares)
    shares, counts = shares[known], counts[known]
    runs = len(shares)
    if runs < 2:
        return math.nan, math.nan
    from scipy import stats

    share, variance = shares.mean(), shares.var(ddof=1) / runs
    alike = share * (1 - share) / variance if shares.min() < shares.max() else counts.sum()
    alike *= (stats.norm.ppf(0.5 + confidence / 2) / _student(confidence, runs)) ** 2
    met, tail = share * alike, 0.5 - confidence / 2
    low = stats.beta.ppf(tail, met, alike - met + 1) if share > 0 else 0.0
    high = stats.beta.ppf(1 - tail, met + 1, alike - met) if share < 1 else 1.0
    return float(low), float(high)


def interval_of_median(values: Any, confidence: float = CONFIDENCE) -> tuple[float, float]:
    """Return the ends of the confidence interval of the median of what values are drawn from; NaN of fewer than two.

    Order statistics, which assume nothing of the distribution, interpolated between the two pairs whose confidence is
    next to the one asked for. The least and greatest of five values hold the median with 93.75 %; of fewer values no
    two hold it often enough, and the interval is Student's with the standard error that a median of normal values has.
    Source: Hettmansperger and Sheather, Statistics & Probability Letters 4 (1986), 75-79.
    """
    values = np.sort(np.asarray(values, dtype=np.float64))
    values = values[~np.isnan(values)]
    count = len(values)
    if count < 2:
        return math.nan, math.nan
    if count < FEWEST_ORDERED:
        half = _student(confidence, count) * float(values.std(ddof=1)) * math.sqrt(math.pi / 2 / count)
        return float(np.median(values)) - half, float(np.median(values)) + half
    outer, beyond = 0, 1
    while 2 * (outer + 2) < count and _held(count, beyond + math.comb(count, outer + 1)) >= confidence:
        outer, beyond = outer + 1, beyond + math.comb(count, outer + 1)
    held, next_held = _held(count, beyond), _held(count, beyond + math.comb(count, outer + 1))
    share = max(0.0, (held - confidence) / (held - next_held))
    place = outer + 1
    inwards = (count - place) * share / (place + (count - 2 * place) * share)
    low = values[outer] + inwards * (values[outer + 1] - values[outer])
    high = values[-1 - outer] - inwards * (values[-1 - outer] - values[-2 - outer])
    return float(low), float(high)


def _held(count: int, beyond: int) -> float:
    """Return how often two of so many values have their median between them.

    Each value is above the median or below it. `beyond` of the 2^count ways put the median below the lower of the two,
    and as many put it above the higher.
    """
    return 1.0 - 2 * beyond / (1 << count)


def summary_of(figure: str) -> str:
    """Return by what the values of a figure over seeds are summed up: median or mean."""
    return "median" if PERCENTILE.search(figure) else "mean"


def over_seeds(figure: str, values: Any, counts: Any = None) -> tuple[float, float, float]:
    """Return what a figure is over seeds, and the ends of its 95 % interval; NaN where there are too few values.

    Of a percentile it is the median, otherwise the mean. `counts` are the independent requests of each run.
    """
    value = _estimate(figure, values)
    if figure == ATTAINMENT and counts is not None:
        return value, *interval_of_share(values, counts)
    if summary_of(figure) == "median":
        return value, *interval_of_median(values)
    return value, *(interval_of_times if MEAN_TIME.search(figure) else interval)(values)


def difference_over_seeds(figure: str, differences: Any, counts: Any = None) -> tuple[float, float, float]:
    """Return what a figure of two settings differs by over seeds, and the ends of its 95 % interval."""
    value = _estimate(figure, differences)
    if figure == ATTAINMENT and counts is not None:
        return value, *interval_of_difference(differences, counts)
    return value, *(interval_of_median if summary_of(figure) == "median" else interval)(differences)


def _estimate(figure: str, values: Any) -> float:
    """Return the median or the mean of the values that there are; NaN of none."""
    values = np.asarray(values, dtype=np.float64)
    seen = values[~np.isnan(values)]
    if not len(seen):
        return math.nan
    return float(np.median(seen) if summary_of(figure) == "median" else seen.mean())


def interval_of_difference(differences: Any, counts: Any) -> tuple[float, float]:
    """Return the ends of the confidence interval of a difference of two shares; NaN of fewer than two runs.

    That of the mean. Where the difference is the same in all runs, it is as wide as so many independent requests leave
    open that none of them has shown otherwise.
    """
    differences = np.asarray(differences, dtype=np.float64)
    low, high = interval(differences)
    if low < high or math.isnan(low):
        return low, high
    unseen = 1.0 - interval_of_share(np.ones(len(differences)), counts)[0]
    return low - unseen, high + unseen


@functools.cache
def _student(confidence: float, count: int) -> float:
    """Return how many standard errors the interval of the mean of so many values reaches to either side."""
    from scipy import stats  # half a second

    return float(stats.t.ppf(0.5 + confidence / 2, count - 1))


def aggregate(table: pd.DataFrame, figure: str, by: Sequence[str]) -> pd.DataFrame:
    """Return a row for each combination of `by`, in the order of the table: estimate, low, high, runs and load.

    `estimate` is the mean over seeds, of a percentile the median (`over_seeds`). `runs` are those that have the figure,
    `failed` those that did not run. `load` is the worst of a seed: `past` means that the queue grew as long as the run
    lasted, so that a time says how long that was, and no more.
    """
    _known(table, figure, by)
    rows = []
    for key, own in _groups(table, by):
        estimate, low, high = over_seeds(figure, own[figure], own.get(INDEPENDENT))
        worst = max(own["load"].dropna(), key=LOADS.index, default="")
        rows.append(
            {
                **dict(zip(by, key, strict=True)),
                "estimate": estimate,
                "low": low,
                "high": high,
                "runs": int(own[figure].notna().sum()),
                "failed": int((own["status"] != RAN).sum()),
                "load": worst,
            }
        )
    return pd.DataFrame(rows)


def _groups(table: pd.DataFrame, by: Sequence[str]) -> Iterable[tuple[Any, pd.DataFrame]]:
    """Return the rows of each combination of `by`, in the order of the table; all of them where there is no `by`."""
    return table.groupby(list(by), sort=False, dropna=False) if by else [((), table)]


def paired(table: pd.DataFrame, figure: str, between: str, base: Any, by: Sequence[str] = ()) -> pd.DataFrame:
    """Return how other values of `between` differ from `base`, seed by seed: the difference, its interval, and ratio.

    The difference is the mean of those of the seeds, of a percentile their median; the ratio is that of both estimates.

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
        counts = own.groupby("seed")[INDEPENDENT].min() if INDEPENDENT in own else None
        for other in of_seeds.columns:
            if other == base or base not in of_seeds:
                continue
            both = of_seeds[[base, other]].dropna()
            own_counts = None if counts is None else counts[both.index]
            difference, low, high = difference_over_seeds(figure, both[other] - both[base], own_counts)
            (had, _, _), (has, _, _) = over_seeds(figure, both[base]), over_seeds(figure, both[other])
            rows.append(
                {
                    **dict(zip(by, key, strict=True)),
                    between: other,
                    "difference": difference,
                    "low": low,
                    "high": high,
                    "ratio": has / had if had else math.nan,
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
