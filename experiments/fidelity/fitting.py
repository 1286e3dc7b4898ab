"""What both fitters of whole runs share: rows under many calibrations at once, and the calibration file."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from joblib import Parallel, delayed
from numpy.typing import NDArray

from experiments.fidelity.compare import AnyRow, Comparison
from simlora.latency.calibration import Calibration

Floats = NDArray[np.float64]


def residuals(
    pool: Parallel,
    rows: Sequence[AnyRow],
    calibrations: Sequence[Calibration],
    simulate: Callable[[AnyRow, Calibration], dict[str, float]],
    errors: Callable[[Comparison[AnyRow]], Sequence[float]],
) -> list[Floats]:
    """Return the errors of all rows under each of the calibrations, which are simulated side by side."""
    figures = iter(pool(delayed(simulate)(row, each) for each in calibrations for row in rows))
    return [
        np.array([error for row in rows for error in errors(Comparison(row, next(figures), True))])
        for _ in calibrations
    ]


def evidence(fitted: Sequence[Comparison[Any]], found: Mapping[str, Mapping[str, float]]) -> dict[str, Any]:
    """Return what a calibration says of its fit: residuals to three digits, and the rows."""
    return {
        "residuals": {
            name: {key: float(f"{value:.3g}") for key, value in error.items()}
            for name, error in found.items()
        },
        "fitted_rows": [one.row.key for one in fitted],
    }
