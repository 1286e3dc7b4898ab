"""The part of a run that its figures describe."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from simlora.metrics.stored import Requests


@dataclass(frozen=True)
class Window:
    """Limits figures to requests that arrive from `from_s` on and before `until_s`.

    Earlier requests find an emptier system than later ones, and later requests run while the system empties. All
    requests are simulated.
    """

    from_s: float
    until_s: float

    @property
    def span_s(self) -> float:
        """Length of the window in seconds."""
        return self.until_s - self.from_s

    def of(self, requests: Requests) -> Requests:
        """Return the requests that arrive in the window."""
        return requests[self.covers(requests["arrival_s"].to_numpy())]

    def covers(self, arrival_s: NDArray[np.float64]) -> NDArray[np.bool_]:
        """Return which arrivals `[requests]` are in the window."""
        return (arrival_s >= self.from_s) & (arrival_s < self.until_s)

    def describe(self) -> dict[str, Any]:
        """Return the window as in summary.json."""
        return asdict(self)


def counted(summary: Mapping[str, Any], requests: Requests) -> Requests:
    """Return the requests that a summary's figures describe: all, or those that arrive in its window."""
    window = summary.get("window")
    return requests if window is None else Window(**window).of(requests)
