"""What comparison.html shows: the runs of several configurations, put side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from simlora.report.sides import Side

SHARES: NDArray[np.float64] = np.linspace(0.0, 0.995, 200)
"""Of requests: where distributions are drawn."""


@dataclass(frozen=True)
class Comparison:
    """What there is to be seen of runs of several configurations.

    `sides` are the lines, by what they run on and are judged by.
    `lines` are the names of configurations, over `x`, a numeric key, where one is varied. `means` has a row for each
    line and x of every figure: line, x, estimate, low, high, runs, failed, load, and mark: best, tie or "". `columns`
    are the figures of the table, `asked` those to be drawn that are not drawn anyway, `cost` is the
    figure on that axis. `quantiles` are by x and metric, and by line `[SHARES]`. `lost` are the runs that have no
    figures: line, x, seed, status, reason.
    """

    sources: Sequence[str]
    command: str
    x: str | None
    by: Sequence[str]
    lines: Sequence[str]
    runs: int
    sides: Sequence[Side]
    means: Mapping[str, pd.DataFrame]
    columns: Sequence[str]
    asked: Sequence[str]
    cost: str | None
    quantiles: Mapping[str, Mapping[str, Mapping[str, NDArray[np.float64]]]]
    lost: pd.DataFrame
    notices: Sequence[str]
