"""Measured against simulated, row by row and at the median."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import numpy as np

from experiments.fidelity.rows import Row

ERRORS = {
    "throughput": "throughput_rps",
    "mean_latency": "mean_latency_s",
    "mean_first_token": "mean_first_token_s",
    "attainment": "attainment_6s",
}
LABELS = {
    "throughput": "throughput",
    "mean_latency": "mean latency",
    "mean_first_token": "mean first token",
    "attainment": "attainment",
}
RELATIVE = ("throughput", "mean_latency", "mean_first_token")
"""Figures whose errors are relative."""
SECONDS = ("mean_latency", "mean_first_token")
JUDGED = ("throughput", "mean_latency")
"""Figures by which rows are furthest off."""
NEAR, PAST = 0.5, 0.9
"""Attainment below which a run counts as past saturation, and above which as below it."""


class Compared(Protocol):
    """A row of any file: its errors by figure, and whether it was fitted."""

    @property
    def error(self) -> dict[str, float]:
        """Signed errors of figures that both sides have."""

    @property
    def fitted(self) -> bool:
        """Whether coefficients were fitted to it."""


AnyComparison = TypeVar("AnyComparison", bound=Compared)


@dataclass(frozen=True)
class Comparison:
    """One row as measured and as simulated; errors are signed, relative but for attainment."""

    row: Row
    simulated: Mapping[str, float]
    fitted: bool

    @property
    def error(self) -> dict[str, float]:
        """Relative errors of throughput and times, the absolute one of attainment, where both sides have one."""
        found = {}
        for name, column in ERRORS.items():
            measured, simulated = self.row.measured.get(column), self.simulated.get(column)
            if measured is None or simulated is None:
                continue
            if name == "attainment":
                found[name] = simulated - measured
            elif measured > 0.0:
                found[name] = simulated / measured - 1.0
        return found

    @property
    def error_s(self) -> dict[str, float]:
        """Errors of the times in seconds."""
        return {
            name: self.simulated[ERRORS[name]] - self.row.measured[ERRORS[name]]
            for name in SECONDS
            if name in self.error
        }

    @property
    def load(self) -> str:
        """Where the measured run was: below, near or past saturation."""
        attainment = self.row.measured.get("attainment_6s")
        if attainment is None:
            return "unknown"
        return "below" if attainment >= PAST else "near" if attainment >= NEAR else "past"

    def as_dict(self) -> dict[str, Any]:
        """What the JSON holds for this row: its own columns, then ours."""
        return {
            **self.row.columns,
            "measured": dict(self.row.measured),
            "simulated": dict(self.simulated),
            "error": self.error,
            "error_s": self.error_s,
            "fitted": self.fitted,
            "load": self.load,
            "calibration": self.row.calibration,
        }


def medians(comparisons: Sequence[Comparison]) -> dict[str, Any]:
    """Return the median and the worst absolute error of each figure, times also in seconds."""
    result: dict[str, Any] = {"rows": len(comparisons)}
    for name in ERRORS:
        errors = [c.error[name] for c in comparisons if name in c.error]
        if not errors:
            continue
        result[name] = spread(errors)
        if name in SECONDS:
            result[name] |= spread([c.error_s[name] for c in comparisons if name in c.error_s], "_s")
    return result


def spread(errors: Sequence[float], unit: str = "") -> dict[str, float]:
    """Return the median and the worst of absolute errors, under keys that end with the unit."""
    sizes = np.abs(errors)
    return {f"median{unit}": float(np.median(sizes)), f"worst{unit}": float(sizes.max())}


def groups(comparisons: Sequence[Comparison]) -> dict[tuple[str, ...], list[Comparison]]:
    """Return comparisons by system, GPU, setting, campaign and whether they were fitted, in order."""
    found: dict[tuple[str, ...], list[Comparison]] = {}
    for comparison in comparisons:
        columns = comparison.row.columns
        fitted = "fitted" if comparison.fitted else "predicted"
        key = (columns["system"], columns["gpu"], columns["setting"], columns["campaign"], fitted)
        found.setdefault(key, []).append(comparison)
    return dict(sorted(found.items()))


def furthest(comparisons: Iterable[AnyComparison], figures: Sequence[str], count: int) -> list[AnyComparison]:
    """Return the predicted rows that are furthest off in any of these figures, the worst first."""

    def off(one: AnyComparison) -> float:
        return max(abs(one.error.get(name, 0.0)) for name in figures)

    return sorted((one for one in comparisons if not one.fitted), key=off, reverse=True)[:count]
