"""Many runs: each made once and kept, in parallel, and searches through them."""

from __future__ import annotations

from simlora.sweeps.search import Capacity, capacity
from simlora.sweeps.table import Sweep, sweep

__all__ = ["Capacity", "Sweep", "capacity", "sweep"]
