"""Functions of arrays by the C library, one number at a time, so that every CPU computes the same bits.

NumPy has its own `exp`, `log`, `power`, `sin` and `cos` for CPUs with AVX-512, which differ in the last bit from what
it computes elsewhere. A trace drawn with them differs from CPU to CPU, and so does all that is simulated from it. A
number takes 0.1 to 0.3 µs, measured on a million at 2 GHz.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]


def exp(values: ArrayLike) -> Floats:
    """Return e to each of the values; infinity where that is too large for a float."""
    return _each(_exp, values)


def log(values: ArrayLike) -> Floats:
    """Return the logarithm of each of the values, which are above 0."""
    return _each(math.log, values)


def log1p(values: ArrayLike) -> Floats:
    """Return the logarithm of 1 and each of the values together, which are at least -1; of -1 minus infinity."""
    return _each(_log1p, values)


def sin(values: ArrayLike) -> Floats:
    """Return the sine of each of the values."""
    return _each(math.sin, values)


def cos(values: ArrayLike) -> Floats:
    """Return the cosine of each of the values."""
    return _each(math.cos, values)


def power(values: ArrayLike, exponent: float) -> Floats:
    """Return each of the values, which are at least 0, to an exponent; 0 to one below 0 is infinity."""
    return _each(lambda value: _power(value, exponent), values)


def _each(function: Callable[[float], float], values: ArrayLike) -> Floats:
    array = np.asarray(values, dtype=np.float64)
    return np.fromiter(map(function, array.ravel().tolist()), np.float64, array.size).reshape(array.shape)


def _exp(value: float) -> float:
    try:
        return math.exp(value)
    except OverflowError:
        return math.inf


def _log1p(value: float) -> float:
    return math.log1p(value) if value > -1.0 else -math.inf


def _power(value: float, exponent: float) -> float:
    try:
        return math.pow(value, exponent)
    except (OverflowError, ValueError):  # too large; 0 to an exponent below 0
        return math.inf
