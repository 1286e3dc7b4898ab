"""Which configuration is better than the others, beyond chance."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd

from simlora.metrics.saturation import PAST
from simlora.report.comparison_table import BEST, TIE
from simlora.sweeps.statistics import aggregate, difference_over_seeds, over_seeds

HIGHER = ("attainment", "goodput", "satisfaction", "throughput", "hit_rate")
LOWER = ("cost.", "gpu_s_", "preemptions", "loads", "load_bytes", "aborted", "rejected")
"""Words in the names of figures of which more is better, and less; times, by their name, are better short."""


def marked(table: pd.DataFrame, figure: str, lines: Sequence[str]) -> pd.DataFrame:
    """Return a figure over seeds by line and x, with marks of the best."""
    found = aggregate(table, figure, ["line", "x"])
    place = {line: place for place, line in enumerate(lines)}
    found = found.sort_values(
        ["x", "line"], key=lambda column: column.map(place) if column.name == "line" else column
    )
    by_seed = table.groupby(["line", "x", "seed"], sort=False)[figure].mean().dropna()
    own = {at: rows.droplevel(["line", "x"]) for at, rows in by_seed.groupby(["line", "x"], sort=False)}
    marks: dict[int, str] = {}
    for _, rivals in found.groupby("x"):
        marks |= _marks(figure, rivals, own)
    found = found.assign(mark=[marks.get(index, "") for index in found.index])
    return found.sort_values("line", key=lambda column: column.map(place), kind="stable").reset_index(
        drop=True
    )


def _marks(figure: str, rivals: pd.DataFrame, own: dict[Any, pd.Series[Any]]) -> dict[int, str]:
    """Return the one that beats all others, or those that cannot be told from the best; nothing if that is all.

    Nor is there a best time past saturation, where times say how long the run lasted.
    """
    ranked = rivals.dropna(subset=["estimate"])
    sign = direction(figure)
    if sign == 0 or len(ranked) < 2:
        return {}
    seen = {index: sign * own[line, x] for index, line, x in ranked[["line", "x"]].itertuples()}
    best = seen[(sign * ranked["estimate"]).idxmax()]
    unbeaten = [index for index, other in seen.items() if not better(figure, best, other)]
    is_time = figure.partition(".")[0].endswith("_s")
    if len(unbeaten) == len(ranked) or (is_time and set(ranked.loc[unbeaten, "load"]) == {PAST}):
        return {}
    return {index: TIE if len(unbeaten) > 1 else BEST for index in unbeaten}


def direction(figure: str) -> int:
    """Return 1 for a figure of which more is better, -1 for one of which less is, 0 where that cannot be said."""
    if any(word in figure for word in HIGHER):
        return 1
    metric = figure.partition(".")[0]
    return -1 if metric.endswith("_s") or any(word in figure for word in LOWER) else 0


def better(figure: str, one: pd.Series[Any], other: pd.Series[Any]) -> bool:
    """Return whether one figure is above another beyond chance, both by seed, each once: of two seeds at least."""
    differences = (one - other).dropna()
    if len(differences) > 1:
        return difference_over_seeds(figure, differences)[1] > 0
    return over_seeds(figure, one)[1] > over_seeds(figure, other)[2]
