"""Host memory that does not hold all adapters: the others are read from disk first (vLLM's max_cpu_loras)."""

from __future__ import annotations

from collections.abc import Iterator

from simlora.core.adapter import Adapter
from simlora.core.request import Request
from simlora.engine.replica.host_link import HostLink
from simlora.engine.replica.part import Part
from simlora.engine.replica.replica import Replica
from simlora.engine.scenario import Scenario
from simlora.latency.transfer import AdapterLoad
from simlora.memory.adapter_cache import AdapterCache
from simlora.metrics.recorder import Recorder


class DiskTierLink(HostLink):
    """Reads adapters that host memory does not hold from disk, and then copies them to the GPU.

    Host memory holds `capacity` adapters, and evicts the least recently used first. Adapters that are in HBM too, in
    the `cache`, are evicted last: they are what runs.
    """

    def __init__(
        self,
        load: AdapterLoad,
        tp: int,
        kv_bytes: int,
        recorder: Recorder,
        capacity: int,
        cache: AdapterCache,
    ) -> None:
        super().__init__(load, tp, kv_bytes, recorder)
        self._capacity, self._cache = capacity, cache
        self._held: dict[int, None] = {}

    def use(self, adapter: Adapter) -> bool:
        """Return whether host memory holds an adapter already; it then does, as the one used last."""
        held = self._held
        known = adapter.id in held
        if known:
            del held[adapter.id]
        elif len(held) == self._capacity:
            del held[next((id for id in held if not self._cache.holds(id)), next(iter(held)))]
        held[adapter.id] = None
        return known

    def holds(self, id: int) -> bool:
        return id in self._held

    def left(self, adapter: Adapter) -> None:
        """The last request that used an adapter is gone."""
        if adapter.id in self._held:
            self._held[adapter.id] = self._held.pop(adapter.id)

    def load(self, adapter: Adapter, now_s: float) -> float:
        from_disk = not self.use(adapter)
        self._recorder.adapter_load(adapter.size_bytes, from_disk)
        seconds = self.adapter_s(adapter.size_bytes, from_disk)
        return self.to_gpu.transfer(now_s, seconds, what=adapter)


class DiskTier(Part):
    """Notifies host memory of the adapters that were used last."""

    @staticmethod
    def requires(scenario: Scenario) -> Iterator[str]:
        if scenario.replica.max_cpu_loras is not None and scenario.cluster.adapter_pool == "distributed":
            yield (
                "cluster.adapter_pool=distributed limits a host by host.memory_bytes, which needs "
                "replica.max_cpu_loras=null"
            )

    def __init__(self, replica: Replica, link: DiskTierLink) -> None:
        self._cache, self._link = replica.kv.adapters, link

    def on_release(self, request: Request, now_s: float) -> None:
        if request.adapter is not None and not self._cache.is_pinned(request.adapter):
            self._link.left(request.adapter)
