"""The numbers behind pictures of merging: what was in the weights when, and what decided it."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from simlora.metrics.journal import CREDIT, MERGED

THRESHOLDS = ("alpha", "beta")
PALETTE = ("#4c78a8", "#f58518", "#54a24b", "#b279a2", "#72b7b2", "#e45756", "#9d755d", "#eeca3b", "#ff9da6")
"""Colours of adapters."""
OTHER = "#9aa0a8"
"""The colour of all for whom there is none of their own."""

Numbers = NDArray[np.float64]


def merged_spans(
    decisions: pd.DataFrame, replica: int, end_s: float, stretches: int | None = None
) -> pd.DataFrame:
    """Return `start_s, end_s, adapter` for each time that a replica had an adapter merged, in order of time.

    Of more than `stretches` of them, equal stretches of time remain, each as it was most of the time.
    """
    rows = decisions[(decisions["name"] == MERGED) & (decisions["replica"] == replica)]
    start_s = rows["time_s"].to_numpy(dtype=np.float64).clip(max=end_s)
    spans = pd.DataFrame(
        {"start_s": start_s, "end_s": np.append(start_s[1:], end_s)[: len(rows)], "adapter": rows["adapter"]}
    )
    lasting = (rows["value"] >= 0) & (spans["end_s"] > spans["start_s"])
    spans = spans[lasting].reset_index(drop=True)
    return spans if stretches is None or len(spans) <= stretches else _thinned(spans, end_s, stretches)


def _thinned(spans: pd.DataFrame, end_s: float, stretches: int) -> pd.DataFrame:
    """Return the mode that lasted longest in each stretch, joined where it is the same in neighbours."""
    codes, names = pd.factorize(spans["adapter"])
    start_s, stop_s = spans["start_s"].to_numpy(), spans["end_s"].to_numpy()
    grid = np.linspace(0.0, end_s, stretches + 1)
    cuts = np.unique(np.concatenate([grid, start_s, stop_s]))
    middle = (cuts[1:] + cuts[:-1]) / 2
    span = np.searchsorted(start_s, middle) - 1
    mode = np.where((span >= 0) & (middle < stop_s[span]), codes[span], len(names))
    lasted_s = np.zeros((stretches, len(names) + 1))
    np.add.at(lasted_s, (np.searchsorted(grid, middle) - 1, mode), np.diff(cuts))
    longest = lasted_s.argmax(axis=1)
    first = np.flatnonzero(np.diff(longest, prepend=-1))
    last = np.append(first[1:], stretches)
    merged = longest[first] < len(names)
    return pd.DataFrame(
        {
            "start_s": grid[first[merged]],
            "end_s": grid[last[merged]],
            "adapter": names[longest[first[merged]]].astype("str"),
        }
    )


def held(rows: pd.DataFrame, times_s: Numbers) -> Numbers:
    """Return the value that rows of changes give at each time, NaN before the first."""
    if rows.empty:
        return np.full(len(times_s), np.nan)
    at = np.searchsorted(rows["time_s"].to_numpy(), times_s, side="right") - 1
    return np.where(at >= 0, rows["value"].to_numpy(dtype=np.float64)[at], np.nan)


def thresholds(decisions: pd.DataFrame, replica: int, times_s: Numbers) -> dict[str, Numbers]:
    """Return a replica's alpha and beta at each time, NaN where they are not known; nothing without either."""
    rows = decisions[(decisions["replica"] == replica) & decisions["name"].isin(THRESHOLDS)]
    if rows.empty:
        return {}
    return {name: held(rows[rows["name"] == name], times_s) for name in THRESHOLDS}


def credits(decisions: pd.DataFrame, replica: int, times_s: Numbers, most: int) -> list[tuple[str, Numbers]]:
    """Return the adapters of a replica whose credit went farthest from where it began, and what they had.

    At most so many; the farthest first, and of equals by name. Credits are what they were when last written down, at
    first 0.
    """
    rows = decisions[(decisions["replica"] == replica) & (decisions["name"] == CREDIT)]
    farthest = rows["value"].abs().groupby(rows["adapter"]).max()
    chosen = sorted(farthest[farthest > 0].items(), key=lambda item: (-item[1], item[0]))[:most]
    return [(str(name), np.nan_to_num(held(rows[rows["adapter"] == name], times_s))) for name, _ in chosen]


def colours(spans: Iterable[pd.DataFrame], others: Iterable[str] = ()) -> dict[str, str]:
    """Return a colour each for the adapters that were merged longest; those left are for `others`, in their order."""
    merged_s: dict[str, float] = {}
    for some in spans:
        for name, start_s, end_s in zip(some["adapter"], some["start_s"], some["end_s"], strict=True):
            merged_s[name] = merged_s.get(name, 0.0) + end_s - start_s
    names = dict.fromkeys([*sorted(merged_s, key=lambda name: (-merged_s[name], name)), *others])
    return dict(zip(names, PALETTE, strict=False))
