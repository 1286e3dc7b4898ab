"""Many runs: each made once and kept, in parallel, and searches through them."""

from __future__ import annotations

from simlora.sweeps.answer import Capacity
from simlora.sweeps.search import capacity
from simlora.sweeps.several import Capacities, capacities
from simlora.sweeps.table import Sweep, sweep

__all__ = ["Capacities", "Capacity", "Sweep", "capacities", "capacity", "sweep"]
