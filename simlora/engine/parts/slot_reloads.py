"""Adapters in use that are evicted and loaded again within a step, as vLLM does when all its slots are in use."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from simlora.core.adapter import Adapter
from simlora.core.request import Request
from simlora.engine.replica.part import Part
from simlora.engine.replica.replica import Replica
from simlora.engine.scenario import Scenario
from simlora.policies.eviction.base import Eviction
from simlora.policies.loading.base import Miss


class SlotReloads(Part):
    """Asks an eviction policy that `evicts_in_use` which adapters have to come again.

    They come from disk if host memory holds no more adapters than HBM, and so evicts the same ones.
    """

    @staticmethod
    def requires(scenario: Scenario) -> Iterator[str]:
        if scenario.policies.eviction().evicts_in_use and scenario.replica.adapter_memory != "slots":
            yield (
                "eviction=lru_in_turn evicts adapters in use from their slots, which needs "
                "replica.adapter_memory=slots; choose eviction=lru"
            )

    def __init__(self, replica: Replica, eviction: Eviction) -> None:
        self._cache, self._eviction, self._link = replica.kv.adapters, eviction, replica.host_link
        self._policy, config = replica.loader.policy, replica.config
        self._from_disk = config.max_cpu_loras is not None and config.max_cpu_loras == config.max_loras
        replica.loader.reload += (self.reload,)
        self._just_left: set[int] = set()  # adapters whose last user left at `_left_s`
        self._left_s = -1.0

    def on_release(self, request: Request, now_s: float) -> None:
        adapter = request.adapter
        if adapter is None or self._cache.is_pinned(adapter):
            return
        if now_s != self._left_s:
            self._left_s = now_s
            self._just_left.clear()
        self._just_left.add(adapter.id)

    def reload(self, missing: Sequence[Adapter], now_s: float) -> float:
        """Load the adapters in use again that made room for the missing ones; return when they are there."""
        if not missing or now_s != self._left_s:
            return now_s
        cache = self._cache
        gone = [id for id in self._just_left if not cache.holds(id)]
        ids = {adapter.id for adapter in missing}
        sizes: list[int] = []
        for id in self._eviction.reloads(cache.pinned, ids, gone) if gone else ():
            adapter = cache.adapter(id)
            if self._policy.on_miss(adapter) is not Miss.FREE:
                sizes.append(adapter.size_bytes)
        return self._link.load_again(sizes, self._from_disk, now_s) if sizes else now_s
