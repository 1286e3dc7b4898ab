"""What a replica's machinery is: its memory, its loader, its runner, and the trials of its scheduler."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple

from simlora.core.adapter import Adapter
from simlora.core.request import Request
from simlora.engine.clock import Clock
from simlora.engine.parts.async_loading import OverlappedLoader
from simlora.engine.parts.cpu_assist import HostCores
from simlora.engine.parts.disk_tier import DiskTierLink, HostMemory
from simlora.engine.parts.gpu_sharing import SharedGpu, SharedRunner
from simlora.engine.parts.handoff import OnMove
from simlora.engine.parts.kv_offload import PrefixAdmission, PrefixCachingKV, SwappedKV
from simlora.engine.parts.merging import MergingRunner
from simlora.engine.parts.pausing import trial_beside
from simlora.engine.parts.queue_reports import Report
from simlora.engine.parts.slowdown import SlowRunner
from simlora.engine.parts.unified_swapper import tree_by_worth
from simlora.engine.replica.adapter_loader import AdapterLoader
from simlora.engine.replica.admission import Admission, trial_limits
from simlora.engine.replica.host_link import HostLink
from simlora.engine.replica.kv_cache_manager import InFlightKV, KVCacheManager
from simlora.engine.replica.model_runner import ModelRunner
from simlora.engine.replica.request_table import HoldingTable, RequestStatus, RequestTable
from simlora.engine.replica.running_batch import RunningBatch
from simlora.engine.replica.scheduler_view import SchedulerView, Trials
from simlora.engine.scenario import Scenario
from simlora.latency.models import LatencyModels
from simlora.latency.transfer import AdapterLoad
from simlora.memory.adapter_cache import AdapterCache, DividedAdapterCache
from simlora.memory.adapter_region import AdapterRegion
from simlora.memory.prefix_tree import PrefixTree
from simlora.memory.reservation import Reservation
from simlora.metrics.recorder import Recorder
from simlora.policies.eviction.swapper import Swapper
from simlora.policies.loading.base import Loader, Miss
from simlora.policies.scheduling.base import SchedulerOutput

MakeLink = Callable[[AdapterLoad, int, int, Recorder], HostLink]


class Surroundings(NamedTuple):
    """What a replica shares with others, and the listeners that it reports to.

    `link` makes its host link, where hosts hold different adapters; `runner` what runs its iterations, in place of the
    latency models.
    """

    on_end: Report
    on_move: OnMove
    queue: tuple[Report, Report] | None = None
    cores: HostCores | None = None
    gpu: SharedGpu | None = None
    link: MakeLink | None = None
    runner: Callable[[LatencyModels], ModelRunner] = ModelRunner


class Machinery:
    """Chooses one replica's managers: what the scenario's system does not have, they do not ask for."""

    def __init__(
        self,
        id: int,
        clock: Clock,
        scenario: Scenario,
        latency: LatencyModels,
        adapters: Sequence[Adapter],
        outputs: Sequence[int],
        recorder: Recorder,
        around: Surroundings,
    ) -> None:
        policies = scenario.policies
        self.id, self.clock, self.scenario, self.latency = id, clock, scenario, latency
        self.adapters, self.outputs, self.recorder, self.around = adapters, outputs, recorder, around
        self.config = scenario.config_of(id)
        self.scheduler, self.policy, self.eviction = (
            policies.scheduler(),
            policies.loader(),
            policies.eviction(),
        )
        self.batch = RunningBatch()

    # What there is ----------------------------------------------------------------------

    @property
    def beside(self) -> bool:
        """Whether weights may come while the batch runs: not where they are merged, or laid out first."""
        return not (self.scenario.policies.merges or self.config.own_region)

    @property
    def defers(self) -> bool:
        """Whether a request may wait for its own copies while the replica goes on."""
        return self.beside and (Miss.WAIT in self.policy.answers or self.policy.overlaps)

    @property
    def hands_over(self) -> bool:
        """Whether requests may go to other replicas, or come from them."""
        scenario = self.scenario
        periods = (scenario.policies.migration.period_s, scenario.scaling.autoscaler.period_s)
        return bool(scenario.cluster.failures) or any(period_s is not None for period_s in periods)

    @property
    def prefetches(self) -> bool:
        """Whether the loading policy asks for adapters ahead of their requests."""
        return type(self.policy).ahead is not Loader.ahead

    @property
    def copies_overlap(self) -> bool:
        """Whether a copy may be under way while an iteration runs."""
        config, scenario = self.config, self.scenario
        return (
            self.defers
            or self.prefetches
            or config.prefix_caching
            or config.preemption == "swap"
            or (self.beside and Miss.ASSIST in self.policy.answers)
            or scenario.policies.migration.brings
            or (scenario.scaling.autoscaler.period_s is not None and scenario.scaling.warm_up_adapters > 0)
        )

    # Memory -----------------------------------------------------------------------------

    def cache(self, region: AdapterRegion | None) -> AdapterCache:
        """Return the adapters in HBM."""
        config, victims = self.config, self.eviction.victims
        if config.divided:
            return DividedAdapterCache(config.kv_token_budget, victims, config.adapter_region_tokens)
        cache = AdapterCache(config.kv_token_budget, victims)
        if region is not None:
            cache.on_evict += (region.drop,)
        return cache

    def link(self, cache: AdapterCache) -> HostLink:
        """Return the link to the host, and to disk or to other hosts behind it."""
        config, model = self.config, self.scenario.model
        # KV heads are copied once there are more GPUs than heads.
        kv_bytes = model.kv_bytes_per_token // min(config.tp, model.kv_heads)
        load, recorder = self.latency.load, self.recorder
        if config.max_cpu_loras:
            return DiskTierLink(load, config.tp, kv_bytes, recorder, HostMemory(config.max_cpu_loras, cache))
        return (self.around.link or HostLink)(load, config.tp, kv_bytes, recorder)

    def kv(self, rule: Reservation, cache: AdapterCache, link: HostLink) -> KVCacheManager:
        """Return the KV in HBM, with what it has to know of copies and of a prefix cache."""
        config, eviction = self.config, self.eviction
        if not self.copies_overlap:
            return KVCacheManager(rule, cache, self.batch)
        pooled = not (config.divided or config.own_region)
        if not config.prefix_caching:
            return InFlightKV(rule, cache, self.batch, link, pooled)
        kind = SwappedKV if isinstance(eviction, Swapper) else PrefixCachingKV
        kv = kind(rule, cache, self.batch, link, pooled, self.recorder)
        block, capacity = self.scenario.cache_block_tokens, config.host_kv_tokens
        if isinstance(eviction, Swapper):
            kv.tree = tree_by_worth(eviction, block, capacity, link.kv_s, kv.send_out)
        else:
            kv.tree = PrefixTree(block, capacity, send=kv.send_out)
        cache.on_change += (kv.tree.adapter,)
        return kv

    def loader(self, kv: KVCacheManager, link: HostLink) -> AdapterLoader:
        """Return what loads adapters."""
        if isinstance(kv, InFlightKV):
            return OverlappedLoader(kv, link, self.policy, self.recorder, self.beside)
        return AdapterLoader(kv, link, self.policy, self.recorder)

    # Running ----------------------------------------------------------------------------

    def runners(self) -> tuple[ModelRunner, MergingRunner | None, SlowRunner | None]:
        """Return what runs iterations, and of its layers those that merge and that slow down."""
        latency, merging, slow = self.latency, None, None
        if latency.merge is None:
            runner = self.around.runner(latency)
        else:
            runner = merging = MergingRunner(latency, latency.merge, self.config.tp)
        if self.scenario.cluster.stragglers:
            runner = slow = SlowRunner(runner)
        if self.around.gpu is not None and latency.host is not None:
            runner = SharedRunner(self.id, runner, self.around.gpu, latency.host)
        return runner, merging, slow

    def table(self, kv: KVCacheManager, runner: ModelRunner, link: HostLink) -> RequestTable:
        """Return the requests' table."""

        def swap_out(tokens: int, now_s: float) -> None:
            runner.stalled_until_s = link.send_kv(tokens, now_s)

        holds = self.defers or self.scenario.policies.assists or self.scheduler.pauses
        swaps = swap_out if self.config.preemption == "swap" else None
        kind = HoldingTable if holds else RequestTable
        return kind(self.id, kv, self.outputs, self.recorder, self.around.on_end, swaps)

    def view(self, table: RequestTable, runner: ModelRunner, region: AdapterRegion | None) -> SchedulerView:
        """Return what policies see."""
        targets_s = self.scenario.ttft_targets_s
        return SchedulerView(
            self.clock,
            self.config,
            self.scheduler,
            table,
            runner,
            self.trials(table, region),
            len(self.scenario.trace.adapters),
            None if targets_s is None else targets_s.tolist(),
        )

    def trials(self, table: RequestTable, region: AdapterRegion | None) -> Trials:
        """Return what starts trials."""
        config, kv, batch, cache = self.config, table.kv, self.batch, table.kv.adapters
        rule, tree, pauses = kv.reservation, kv.prefixes, self.scheduler.pauses
        limits = trial_limits(rule, cache, config, () if region is None else (region.fits,))

        def start(seats: int) -> Admission:
            rule.begin(batch.step)
            if region is not None:
                region.begin(batch)
            return Admission(limits, seats) if tree is None else PrefixAdmission(tree, limits, seats)

        def trial(beside: Collection[Request] | None = None) -> Admission:
            if beside is not None or pauses:
                return trial_beside(table, config, beside, start)
            return start(config.max_num_seqs - table.held_count - len(batch.members))

        def plain(beside: Collection[Request] | None = None) -> Admission:
            if beside is not None:
                return trial(beside)
            rule.begin(batch.step)
            return Admission(limits, config.max_num_seqs - table.held_count - len(batch.members))

        return plain if region is None and tree is None and not pauses else trial

    def asks(self, table: RequestTable) -> Callable[[SchedulerView], SchedulerOutput]:
        """Return what asks the scheduler; it is not asked while all that there is are requests whose copies go on."""
        schedule, held, nothing = self.scheduler.schedule, table.held, SchedulerOutput()
        if not (self.defers or self.scenario.policies.assists):
            return schedule

        def ask(view: SchedulerView) -> SchedulerOutput:
            paused, prefilling = held[RequestStatus.PAUSED], held[RequestStatus.PREFILLING]
            return schedule(view) if view.members or table.queue.count or paused or prefilling else nothing

        return ask
