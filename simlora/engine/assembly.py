"""Puts a replica together: its memory, link, loader, runner, table and view, and the parts that its system has."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from simlora.core.adapter import Adapter
from simlora.engine.clock import Clock
from simlora.engine.parts.adapter_memory import OwnRegion, Padding
from simlora.engine.parts.async_loading import (
    AsyncLoading,
    InFlightCopies,
    OverlappedLoader,
)
from simlora.engine.parts.chunked_prefill import ChunkedPrefill
from simlora.engine.parts.cpu_assist import CpuAssist, HostCores
from simlora.engine.parts.disk_tier import DiskTier, DiskTierLink
from simlora.engine.parts.early_loading import early
from simlora.engine.parts.gpu_sharing import GpuSharing, SharedGpu, SharedRunner
from simlora.engine.parts.handoff import HandingOver, OnMove
from simlora.engine.parts.kv_handover import KvReceiving, sending
from simlora.engine.parts.kv_offload import PrefixCaching, PrefixCachingKV
from simlora.engine.parts.kv_store import KvStoring, StoreAccess
from simlora.engine.parts.kv_transfer import KvTransfers
from simlora.engine.parts.lora_server import LoraServer, LoraServing, RemoteRunner
from simlora.engine.parts.merging import Merging, MergingRunner
from simlora.engine.parts.pausing import Pausing
from simlora.engine.parts.reporting import QueueReports, Report, Tracing
from simlora.engine.parts.slot_reloads import SlotReloads
from simlora.engine.parts.slowdown import Slowdown, SlowRunner
from simlora.engine.parts.speculation import Speculating, SpeculativeRunner
from simlora.engine.parts.trials import PlainTrials, TrialsBeside
from simlora.engine.parts.unified_swapper import KvWorth, SwappedKV, UnifiedSwapper
from simlora.engine.replica.adapter_loader import AdapterLoader
from simlora.engine.replica.admission import reservation, trial_limits
from simlora.engine.replica.host_link import HostLink
from simlora.engine.replica.kv_cache_manager import InFlightKV, KVCacheManager
from simlora.engine.replica.model_runner import ModelRunner
from simlora.engine.replica.part import NO_HOOKS, Hooks, Part
from simlora.engine.replica.replica import Replica
from simlora.engine.replica.request_table import HoldingTable, RequestTable
from simlora.engine.replica.running_batch import RunningBatch
from simlora.engine.replica.scheduler_view import SchedulerView, Trials
from simlora.engine.scenario import ClusterConfig, Scenario
from simlora.latency.models import LatencyModels
from simlora.latency.transfer import AdapterLoad
from simlora.memory.adapter_cache import AdapterCache, DividedAdapterCache
from simlora.memory.adapter_region import AdapterRegion, adapter_region
from simlora.memory.prefix_tree import PrefixTree
from simlora.memory.reservation import Pausable
from simlora.metrics.recorder import Recorder
from simlora.policies.eviction.swapper import Swapper
from simlora.policies.loading.base import Miss


@dataclass(kw_only=True)
class Assembly:
    """Builds replica `id` of a scenario; what its system does not have, the replica does not ask for.

    `outputs` are the true output lengths by request. `on_end`, `on_move` and `on_queue` are notified of requests that
    end, move, and join or leave the waiting queue; None: no router counts those. `cores` and `gpu` are what the replica
    shares with others, if it does, `transfers` how KV comes from those that prefill, if it does, and `stores` how it
    reaches those that keep KV below the host's memory. `make_link` makes its host link (another one where hosts hold
    different adapters), and `make_runner` what runs its iterations.
    """

    id: int
    clock: Clock
    scenario: Scenario
    latency: LatencyModels
    adapters: Sequence[Adapter]
    outputs: Sequence[int]
    recorder: Recorder
    on_end: Report
    on_move: OnMove
    on_queue: tuple[Report, Report] | None = None
    cores: HostCores | None = None
    gpu: SharedGpu | None = None
    transfers: KvTransfers | None = None
    stores: Sequence[StoreAccess] = ()
    make_link: Callable[[AdapterLoad, int, int, Recorder], HostLink] = HostLink
    make_runner: Callable[[LatencyModels], ModelRunner] = ModelRunner

    def __post_init__(self) -> None:
        policies = self.scenario.policies
        self.config = self.scenario.config_of(self.id)
        self.scheduler, self.policy = policies.scheduler(), policies.loader()
        self.eviction = policies.eviction()
        # Whether weights may come while the batch runs: not if they are merged, or laid out in memory of their own.
        self.beside = not (policies.merges or self.config.own_region)
        self.defers = self.beside and (Miss.WAIT in self.policy.answers or self.policy.overlaps)

    @property
    def prefills(self) -> bool:
        """Whether the replica hands requests over, once they have a token."""
        return self.id < self.scenario.cluster.prefill_replicas or self.scenario.cluster.mixes

    @property
    def receives(self) -> bool:
        """Whether the replica gets requests that others have prefilled."""
        return self.transfers is not None and (not self.prefills or self.scenario.cluster.mixes)

    def replica(self) -> Replica:
        """Return the replica, with empty memory and its parts attached."""
        config, scenario, recorder, policy = self.config, self.scenario, self.recorder, self.policy
        region = None
        if config.own_region:
            region = adapter_region(config.adapter_memory, config.adapter_region_tokens)
        cache = self._cache(region)
        link = self._link(cache)
        kv = self._kv(cache, link)
        loader = (
            OverlappedLoader(kv, link, policy, recorder, self.beside)
            if isinstance(kv, InFlightKV)
            else AdapterLoader(kv, link, policy, recorder)
        )
        model, runner = self._runners()
        table = self._table(kv, runner, link)
        cache.waiting = table.queue.count_of
        targets_s = scenario.ttft_targets_s
        view = SchedulerView(
            self.clock,
            config,
            self.scheduler,
            table,
            runner,
            self._trials(table, region),
            len(scenario.trace.adapters),
            None if targets_s is None else targets_s.tolist(),
        )
        replica = Replica(
            self.id,
            config,
            self.clock,
            recorder,
            table,
            loader,
            link,
            runner,
            view,
            self.scheduler.schedule,
            scenario.fast_forward,
        )
        own = (make(replica) for make in scenario.parts)
        parts = [*self._parts(replica, model, region), *own]
        replica.attach(Hooks(parts) if parts else NO_HOOKS)
        return replica

    # What it is made of -----------------------------------------------------------------

    def _cache(self, region: AdapterRegion | None) -> AdapterCache:
        """Return the adapters in HBM."""
        config, victims, sweeps = self.config, self.eviction.victims, self.eviction.sweeps
        clock, load, tp = self.clock, self.latency.load, config.tp

        def now_s() -> float:
            return clock.now

        def load_s(adapter: Adapter) -> float:
            return load.load_s(adapter.size_bytes // tp)

        tokens = config.kv_token_budget
        if config.divided:
            return DividedAdapterCache(tokens, victims, config.adapter_region_tokens, sweeps, now_s, load_s)
        cache = AdapterCache(tokens, victims, sweeps, now_s, load_s)
        if region is not None:
            cache.on_evict += (region.drop,)
        return cache

    def _link(self, cache: AdapterCache) -> HostLink:
        """Return the link to the host, and to disk or to other hosts behind it."""
        config, load = self.config, self.latency.load
        kv_bytes = self.scenario.model.kv_bytes_per_gpu(config.tp)
        if config.max_cpu_loras:
            return DiskTierLink(load, config.tp, kv_bytes, self.recorder, config.max_cpu_loras, cache)
        return self.make_link(load, config.tp, kv_bytes, self.recorder)

    def _kv(self, cache: AdapterCache, link: HostLink) -> KVCacheManager:
        """Return the KV in HBM, which tracks copies and cached prefixes only where there are some."""
        config, eviction, scaling = self.config, self.eviction, self.scenario.scaling
        rule, batch = reservation(config), RunningBatch(self.outputs)
        if self.scheduler.pauses or self.prefills:
            rule = Pausable(rule)
        copies_overlap = (
            self.defers
            or self.policy.prefetches
            or config.prefix_caching
            or config.preemption == "swap"
            or (self.beside and Miss.ASSIST in self.policy.answers)
            or self.scenario.policies.migration.brings
            or (scaling.autoscaler.period_s is not None and scaling.warm_up_adapters > 0)
            or self.receives
        )
        if not copies_overlap:
            return KVCacheManager(rule, cache, batch)
        pooled = not (config.divided or config.own_region)
        if not config.prefix_caching:
            return InFlightKV(rule, cache, batch, link, pooled)
        blocks = self.scenario.cache_block_tokens_with(config), config.host_kv_tokens
        if isinstance(eviction, Swapper):
            by_worth = partial(tree_by_worth, eviction, link, *blocks)
            return SwappedKV(rule, cache, batch, link, pooled, by_worth, self.recorder)
        make_tree, through = partial(PrefixTree, *blocks), config.writes_through
        return PrefixCachingKV(rule, cache, batch, link, pooled, make_tree, self.recorder, through)

    def _runners(self) -> tuple[ModelRunner, ModelRunner]:
        """Return what runs the model, and what the replica launches: that, or a wrapper that slows it down."""
        latency, merge = self.latency, self.latency.merge
        speculation = self.scenario.speculation
        if speculation.tokens:
            model: ModelRunner = SpeculativeRunner(
                latency, latency.draft, speculation.tokens, speculation.most_running
            )
        elif isinstance(self.gpu, LoraServer) and latency.remote is not None:
            model = RemoteRunner(self.id, latency, latency.remote, self.gpu)
        elif merge is not None:
            model = MergingRunner(latency, merge, self.config.tp)
        else:
            model = self.make_runner(latency)
        if self.gpu is not None and latency.host is not None:
            return model, SharedRunner(self.id, model, self.gpu, latency.host)
        return model, SlowRunner(model) if self.scenario.cluster.may_straggle else model

    def _table(self, kv: KVCacheManager, runner: ModelRunner, link: HostLink) -> RequestTable:
        """Return the requests' table."""

        def swap_out(tokens: int, now_s: float) -> None:
            runner.stall(link.send_kv(tokens, now_s))

        holds = self.defers or self.scenario.policies.assists or self.scheduler.pauses or self.receives
        kind = HoldingTable if holds else RequestTable
        swaps = swap_out if self.config.preemption == "swap" else None
        return kind(self.id, kv, self.outputs, self.recorder, self.on_end, swaps)

    def _trials(self, table: RequestTable, region: AdapterRegion | None) -> Trials:
        """Return what starts trials of admission."""
        kv = table.kv
        tree = kv.tree if isinstance(kv, PrefixCachingKV) else None
        limits = trial_limits(
            kv.reservation, kv.adapters, self.config, () if region is None else (region.fits,)
        )
        if region is None and tree is None and not isinstance(kv.reservation, Pausable):
            return PlainTrials(table, self.config, limits)
        return TrialsBeside(table, self.config, limits, region, tree)

    # Parts ------------------------------------------------------------------------------

    def _parts(self, replica: Replica, model: ModelRunner, region: AdapterRegion | None) -> Iterator[Part]:
        """Yield the system's parts; where several define a hook, it is called in this order."""
        kv, link, scenario, tracing = replica.kv, replica.host_link, self.scenario, self.recorder.tracing
        loader = replica.loader if isinstance(replica.loader, OverlappedLoader) else None
        periods = (scenario.policies.migration.period_s, scenario.scaling.autoscaler.period_s)
        if isinstance(kv, PrefixCachingKV):
            yield PrefixCaching(replica, kv, self.outputs)
            if self.stores:
                by_cost = scenario.cluster.kv_tiers.fetch == "by_cost"
                elsewhere = None if self.transfers is None else self.transfers.keeps
                yield KvStoring(replica, kv, self.outputs, self.stores, by_cost, elsewhere)
        if self.receives or scenario.cluster.may_fail or any(period_s is not None for period_s in periods):
            yield HandingOver(replica, self.on_move, loader if region is None else None)
        if isinstance(replica.runner, SlowRunner):
            yield Slowdown(replica, replica.runner)
        if isinstance(model, RemoteRunner) and isinstance(self.gpu, LoraServer):
            yield LoraServing(replica, self.gpu, model)
        elif self.gpu is not None:
            yield GpuSharing(replica, self.gpu)
        if self.scheduler.chunks:
            yield ChunkedPrefill(replica)
        if isinstance(model, SpeculativeRunner):
            yield Speculating(replica, model, scenario.acceptance, scenario.speculation.tokens)
        if isinstance(kv.reservation, Pausable) and self.scheduler.pauses:
            yield Pausing(replica, kv.reservation)
        if self.config.reserve == "padded":
            yield Padding()
        if loader is not None:
            yield from self._overlapping(replica, loader)
        if self.transfers is not None and self.prefills:
            layers = scenario.model.layers if scenario.cluster.pools.by_layer else 0
            yield from sending(replica, self.transfers, self.outputs, layers, scenario.cluster.mixes)
        if isinstance(model, MergingRunner):
            yield Merging(replica, model)
        if isinstance(link, DiskTierLink):
            yield DiskTier(replica, link)
        if self.eviction.evicts_in_use:
            yield SlotReloads(replica, self.eviction)
        if region is not None:
            yield OwnRegion(replica, region, self.latency.flush_s)
        if self.on_queue is not None:
            yield QueueReports(self.id, *self.on_queue)
        if tracing is not None:
            yield Tracing(replica, tracing)

    def _overlapping(self, replica: Replica, loader: OverlappedLoader) -> Iterator[Part]:
        """Yield the parts of a replica whose copies overlap its iterations."""
        kv, cpu_lora = replica.kv, self.latency.cpu_lora
        assert isinstance(kv, InFlightKV), "copies overlap iterations, and their slots are not known"
        if self.transfers is not None and self.receives:
            yield KvReceiving(replica, loader, self.transfers)
        if self.cores is not None and cpu_lora is not None:
            yield CpuAssist(replica, self.cores, cpu_lora, decodes=not self.prefills)
        if self.defers:
            yield AsyncLoading(replica, loader, self.scheduler.chunks)
        yield from early(replica, loader, self.beside)
        yield InFlightCopies(replica, kv, loader)
        if isinstance(kv, SwappedKV) and isinstance(self.eviction, Swapper):
            kv.tree.fetched = loader.fetched
            yield UnifiedSwapper(replica, self.eviction, kv, self.adapters, self.policy.on_arrival)


def shared_gpus(cluster: ClusterConfig) -> list[SharedGpu]:
    """Return what each replica shares with others: a GPU, or a LoRA server with all; [] where none shares any."""
    if cluster.lora_server_gpus:
        return [LoraServer(cluster.lora_server_gpus)] * cluster.replicas
    engines = cluster.engines_per_gpu
    gpus = [SharedGpu() for _ in range(0, cluster.replicas, engines)] if engines > 1 else []
    return [gpus[id // engines] for id in range(cluster.replicas)] if gpus else []


def preload(replica: Replica, adapter: Adapter) -> None:
    """Have an adapter in HBM from the start, if it fits there, and in memory of the pool's kind."""
    if replica.part(OwnRegion) is None and replica.loader.preload(adapter):
        if isinstance(replica.host_link, DiskTierLink):
            replica.host_link.use(adapter)


def tree_by_worth(
    policy: Swapper,
    link: HostLink,
    block_size: int,
    host_capacity_tokens: int,
    send: Callable[[int, float, float], float],
) -> PrefixTree:
    """Return a tree of KV that leaves and comes back by what the policy says it is worth.

    It is copied over the `link`; `send` starts a copy to the host, as the tree asks it.
    """

    return PrefixTree(
        block_size,
        host_capacity_tokens,
        KvWorth(policy, link, block_size),
        comes_back=True,
        send=send,
        after_adapters=policy.dependencies,
        needs_adapter=not policy.matches_invalid,
        used_when_found=True,
    )
