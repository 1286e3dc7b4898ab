"""Many runs: each made once and kept, in parallel, and searches through them."""

from __future__ import annotations

from simlora.sweeps.search import Capacity, capacity

__all__ = ["Capacity", "capacity"]
