"""Non-negative least squares of relative errors, judged on points that were held out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import nnls

Floats = NDArray[np.float64]
EVERY = 5
"""Every fifth point is held out."""


@dataclass(frozen=True)
class Fit:
    """Coefficients >= 0 by name, and the mean absolute relative errors of the linear form that they make."""

    coefficients: dict[str, float]
    points: int
    mape: float
    held_out_mape: float
    held_out_worst: float
    r2: float

    def __getitem__(self, name: str) -> float:
        return self.coefficients[name]


def terms_of(table: pd.DataFrame, terms: Mapping[str, str]) -> dict[str, Floats]:
    """Return columns of a table, or what is computed of them, by coefficient: `batch * context`, or `1`."""
    found = {name: table.eval(term, engine="python") for name, term in terms.items()}
    return {name: np.broadcast_to(np.asarray(each, dtype=float), len(table)) for name, each in found.items()}


def fit(terms: Mapping[str, Floats], measured: ArrayLike, weights: Floats | None = None) -> Fit:
    """Fit measured = sum of coefficient * term, least relative squares, on four points of five.

    `terms` and `measured` share one order, along which every fifth is held out; `weights` say how much a point counts.
    R2 is over all points, of the times as they are.
    """
    columns = np.stack([np.asarray(term, dtype=float) for term in terms.values()], axis=1)
    times = np.asarray(measured, dtype=float)
    held = np.arange(len(times)) % EVERY == EVERY // 2
    if held.all() or len(times) - held.sum() < columns.shape[1]:
        held[:] = False
    scale = (np.ones_like(times) if weights is None else np.sqrt(weights)) / times
    largest = columns.max(axis=0)  # terms differ by ten orders of magnitude
    found, _ = nnls((columns / largest * scale[:, None])[~held], (times * scale)[~held])
    found = found / largest
    errors = np.abs(columns @ found / times - 1)
    judged = errors[held] if held.any() else np.array([np.nan])
    residual, spread = ((columns @ found - times) ** 2).sum(), ((times - times.mean()) ** 2).sum()
    return Fit(
        coefficients=dict(zip(terms, map(float, found), strict=True)),
        points=len(times),
        mape=float(errors[~held].mean()),
        held_out_mape=float(judged.mean()),
        held_out_worst=float(judged.max()),
        r2=float(1 - residual / spread),
    )


def by_octave(sizes: ArrayLike) -> Floats:
    """Return weights that give every doubling of a size the same say, however many points it has."""
    octaves = np.floor(np.log2(np.asarray(sizes, dtype=float)))
    _, index, counts = np.unique(octaves, return_inverse=True, return_counts=True)
    return np.asarray(1.0 / counts[index])
