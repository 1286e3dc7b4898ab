"""Puts replicas together: the loop, and the parts that the scenario's system has."""

from __future__ import annotations

from simlora.core.adapter import Adapter
from simlora.core.errors import InputError
from simlora.engine.machinery import Machinery, Surroundings
from simlora.engine.parts.adapter_memory import OwnRegion, Padding
from simlora.engine.parts.async_loading import AsyncLoading, KvOnTheWay, OverlappedLoader, SlotsInFlight
from simlora.engine.parts.chunked_prefill import ChunkedPrefill
from simlora.engine.parts.cpu_assist import CpuAssist
from simlora.engine.parts.disk_tier import DiskTier, DiskTierLink
from simlora.engine.parts.gpu_sharing import GpuSharing
from simlora.engine.parts.handoff import HandingOver
from simlora.engine.parts.kv_offload import PrefixCaching, PrefixCachingKV, SwappedKV
from simlora.engine.parts.merging import Merging, MergingRunner
from simlora.engine.parts.pausing import Pausing
from simlora.engine.parts.prefetching import Prefetching
from simlora.engine.parts.queue_reports import QueueReports
from simlora.engine.parts.slot_reloads import SlotReloads
from simlora.engine.parts.slowdown import Slowdown, SlowRunner
from simlora.engine.parts.tracing import Tracing
from simlora.engine.parts.unified_swapper import UnifiedSwapper
from simlora.engine.replica.admission import reservation
from simlora.engine.replica.hooks import Hooks
from simlora.engine.replica.kv_cache_manager import InFlightKV
from simlora.engine.replica.part import Part
from simlora.engine.replica.replica import Replica
from simlora.engine.scenario import Scenario
from simlora.memory.adapter_region import AdapterRegion, adapter_region
from simlora.memory.reservation import Pausable
from simlora.policies.eviction.swapper import Swapper

__all__ = ["Assembly", "Surroundings", "check", "preload"]

WITH_REQUIREMENTS: tuple[type[Part], ...] = (
    GpuSharing,
    PrefixCaching,
    UnifiedSwapper,
    SlotReloads,
    Pausing,
    OwnRegion,
    CpuAssist,
    DiskTier,
)


def check(scenario: Scenario) -> None:
    """Raise InputError for the first setting that a part of the scenario's replicas cannot work with."""
    own = (getattr(make, "func", make) for make in scenario.parts)
    parts = [part for part in WITH_REQUIREMENTS if part.used_by(scenario)]
    parts += [part for part in own if isinstance(part, type) and issubclass(part, Part)]
    for part in parts:
        for problem in part.requires(scenario):
            raise InputError(problem)


class Assembly(Machinery):
    """Builds one replica; what the scenario's system does not have, the replica does not have either."""

    def replica(self) -> Replica:
        """Return the replica, with empty memory and its parts attached."""
        config, rule, region = self.config, reservation(self.config), None
        if self.scheduler.pauses:
            rule = Pausable(rule)
        if config.own_region:
            region = adapter_region(config.adapter_memory, config.adapter_region_tokens)
        cache = self.cache(region)
        link = self.link(cache)
        kv = self.kv(rule, cache, link)
        runner, merging, slow = self.runners()
        table = self.table(kv, runner, link)
        view = self.view(table, runner, region)
        replica = Replica(
            self.id,
            config,
            self.clock,
            self.recorder,
            table,
            self.loader(kv, link),
            link,
            runner,
            view,
            self.asks(table),
            self.scenario.fast_forward,
        )
        parts = self._parts(replica, region, merging, slow)
        replica.attach(Hooks([*parts, *(make(replica) for make in self.scenario.parts)]))
        return replica

    def _parts(
        self,
        replica: Replica,
        region: AdapterRegion | None,
        merging: MergingRunner | None,
        slow: SlowRunner | None,
    ) -> list[Part]:
        """Return the parts; where several define a hook, it is called in this order."""
        config, around, loader = self.config, self.around, replica.loader
        overlapped = loader if isinstance(loader, OverlappedLoader) else None
        parts: list[Part] = []
        if isinstance(replica.kv, PrefixCachingKV):
            parts.append(PrefixCaching(replica.kv, self.outputs, replica.table))
        if self.hands_over:
            parts.append(HandingOver(replica, around.on_move, None if config.own_region else overlapped))
        if slow is not None:
            parts.append(Slowdown(replica, slow))
        if around.gpu is not None:
            parts.append(GpuSharing(replica, around.gpu))
        if self.scheduler.chunks:
            parts.append(ChunkedPrefill(replica))
        if isinstance(replica.kv.reservation, Pausable):
            parts.append(Pausing(replica, replica.kv.reservation))
        if config.reserve == "padded":
            parts.append(Padding())
        if overlapped is not None:
            parts += self._overlapping(replica, overlapped)
        if merging is not None:
            parts.append(Merging(replica, merging, self.recorder))
        parts += self._of_adapters(replica, region)
        if around.queue is not None:
            parts.append(QueueReports(self.id, *around.queue))
        if self.recorder.tracing is not None:
            parts.append(Tracing(replica, self.recorder.tracing))
        return parts

    def _overlapping(self, replica: Replica, loader: OverlappedLoader) -> list[Part]:
        """Return the parts of a replica whose copies overlap its iterations."""
        kv = replica.kv
        assert isinstance(kv, InFlightKV), "copies overlap iterations, and their slots are not known"
        parts: list[Part] = [KvOnTheWay(loader), SlotsInFlight(kv, replica)]
        waiting: list[Part] = []
        if self.around.cores is not None and self.latency.cpu_lora is not None:
            waiting.append(CpuAssist(replica, loader, self.around.cores, self.latency.cpu_lora))
        if self.defers:
            waiting.append(AsyncLoading(replica, loader, self.scheduler.chunks))
        if self.prefetches:
            waiting.append(Prefetching(replica, self.policy, loader))
        if isinstance(kv, PrefixCachingKV):
            loader.on_admit += (kv.begin_with,)
        if isinstance(kv, SwappedKV):
            assert isinstance(self.eviction, Swapper), "KV is swapped without an order"
            swapper = UnifiedSwapper(replica, self.eviction, kv, self.adapters, loader.fetch)
            loader.on_admit += (swapper.wanted,)
            parts.append(swapper)
        return [*waiting, *parts]

    def _of_adapters(self, replica: Replica, region: AdapterRegion | None) -> list[Part]:
        """Return the parts that lay adapters out, load them again, or read them from disk."""
        cache, loader, link, config = replica.kv.adapters, replica.loader, replica.host_link, self.config
        parts: list[Part] = []
        if isinstance(link, DiskTierLink):
            parts.append(DiskTier(link.memory, cache))
        if self.eviction.evicts_in_use:
            from_disk = config.max_cpu_loras is not None and config.max_cpu_loras == config.max_loras
            reloads = SlotReloads(cache, self.eviction, self.policy, link, from_disk)
            loader.reload += (reloads.reload,)
            parts.append(reloads)
        if region is not None:
            own = OwnRegion(region, replica.runner, self.latency.flush_s)
            loader.on_missing += (own.lay_out,)
            parts.append(own)
        return parts


def preload(replica: Replica, adapter: Adapter) -> None:
    """Have an adapter in HBM from the start, if it fits there, and in memory of the pool's kind."""
    if replica.part(OwnRegion) is None and replica.loader.preload(adapter):
        if isinstance(replica.host_link, DiskTierLink):
            replica.host_link.memory.use(adapter)
