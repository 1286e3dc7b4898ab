"""Names for the most common array types."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Counts = NDArray[np.integer[Any]]
"""Whole numbers of whatever width."""
