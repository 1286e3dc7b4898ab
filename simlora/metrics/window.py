"""The window of a run that its figures are of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Window:
    """Figures are of the requests that arrive from `from_s` on and before `until_s`.

    Those before find an emptier system than later ones, those after leave one that empties; all are simulated.
    """

    from_s: float
    until_s: float

    @property
    def span_s(self) -> float:
        """How long it is."""
        return self.until_s - self.from_s

    def of(self, requests: pd.DataFrame) -> pd.DataFrame:
        """Return the requests that arrive in it."""
        return requests[self.covers(requests["arrival_s"].to_numpy())]

    def covers(self, arrival_s: NDArray[np.float64]) -> NDArray[np.bool_]:
        """Return which of some requests `[requests]` arrive in it."""
        return (arrival_s >= self.from_s) & (arrival_s < self.until_s)

    def describe(self) -> dict[str, Any]:
        """Return what summary.json says of it."""
        return asdict(self)


def counted(summary: Mapping[str, Any], requests: pd.DataFrame) -> pd.DataFrame:
    """Return the requests that the figures of a summary are of: all, or those that arrive in its window."""
    window = summary.get("window")
    return requests if window is None else Window(**window).of(requests)
