"""Adapters in the memory of a replica's host, where that does not hold all of them."""

from __future__ import annotations

from simlora.core.adapter import Adapter
from simlora.memory.pool import Pool


class HostMemory:
    """`capacity` adapters, the least recently used first; what it has forgotten comes from disk (vLLM's max_cpu_loras).

    Those that are in HBM too, in the `pool`, go last: they are what runs.
    """

    __slots__ = ("_held", "_pool", "capacity")

    def __init__(self, capacity: int, pool: Pool) -> None:
        self.capacity, self._pool = capacity, pool
        self._held: dict[int, None] = {}

    def use(self, adapter: Adapter) -> bool:
        """Return whether an adapter is there already; it then is, and is the one used last."""
        held = self._held
        known = adapter.id in held
        if known:
            del held[adapter.id]
        elif len(held) == self.capacity:
            del held[next((id for id in held if not self._pool.holds(id)), next(iter(held)))]
        held[adapter.id] = None
        return known

    def left(self, adapter: Adapter) -> None:
        """The last request that used an adapter is gone."""
        if adapter.id in self._held:
            self._held[adapter.id] = self._held.pop(adapter.id)
