"""Adapters that are loaded before their requests start."""

from __future__ import annotations

from simlora.engine.parts.async_loading import OverlappedLoader
from simlora.engine.replica.part import Part
from simlora.engine.replica.replica import Replica
from simlora.policies.loading.base import Loader
from simlora.policies.scheduling.base import SchedulerOutput


class Prefetching(Part):
    """Asks the loading policy which adapters to have in HBM, before every decode window and at every arrival."""

    __slots__ = ("_loader", "_policy", "_replica")

    def __init__(self, replica: Replica, policy: Loader, loader: OverlappedLoader) -> None:
        self._replica, self._policy, self._loader = replica, policy, loader

    def on_arrival(self) -> bool:
        """Return whether a load could start at the next boundary, whatever the scheduler has decided."""
        cache = self._replica.kv.adapters
        return any(adapter not in cache for adapter in self._policy.ahead(self._replica.view))

    def prepare(self, output: SchedulerOutput, now_s: float) -> float:
        if not self._replica.table.prefill and (wanted := self._policy.ahead(self._replica.view)):
            self._loader.prefetch(wanted, now_s)
        return 0.0
