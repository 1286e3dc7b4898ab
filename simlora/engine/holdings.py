"""What one replica holds in HBM: the KV of its requests, adapters, and loads on their way."""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence, Set

from simlora.core.adapter import Adapter
from simlora.core.request import Request
from simlora.engine.admission import reservation
from simlora.engine.link import Link
from simlora.engine.scenario import ReplicaConfig, Scenario
from simlora.latency.models import LatencyModels
from simlora.memory.adapter_region import adapter_region
from simlora.memory.pool import Pool
from simlora.memory.prefix_cache import PrefixCache
from simlora.metrics.recorder import Recorder
from simlora.policies.loading.base import Loader, Miss


class Holdings:
    """KV slots by the reservation's rule, adapters in the pool, and the link that brings them.

    `step` is the replica's count of decode steps, by which the KV of running requests has grown. `still_tokens` are the
    slots of those who are paused.
    `stalled_s` is until when the GPU waits: for KV on its way to the host, or for its allocator.
    """

    __slots__ = (
        "_beside",
        "_eviction",
        "_flushes",
        "_host",
        "_host_most",
        "_just_left",
        "_kv_bytes",
        "_latency",
        "_left_s",
        "_loader",
        "_recorder",
        "_slots",
        "_still",
        "_tp",
        "_watched",
        "link",
        "pool",
        "prefixes",
        "region",
        "reservation",
        "stalled_s",
        "still_tokens",
    )

    def __init__(
        self,
        scenario: Scenario,
        config: ReplicaConfig,
        loader: Loader,
        latency: LatencyModels,
        recorder: Recorder,
    ) -> None:
        self.link = Link()
        self._still: dict[int, int] = {}  # the slots of those who are paused, by request
        self.still_tokens = 0
        self.stalled_s = 0.0
        self._flushes = 0
        self.region = (
            adapter_region(config.adapter_memory, config.adapter_region_tokens) if config.own_region else None
        )
        self._eviction = scenario.policies.eviction()
        self.pool = Pool(
            config.kv_token_budget,
            self._eviction.victims,
            self.region,
            config.adapter_region_tokens if config.divided else None,
        )
        self._just_left: set[int] = set()  # adapters whose last user left at `_left_s`
        self._left_s = -1.0
        self._watched = self._eviction.in_turn or config.host_adapters is not None  # when adapters fall idle
        self._host: dict[int, None] | None = {} if config.host_adapters else None  # least recently used first
        self._host_most, self._slots = config.host_adapters or 0, config.max_adapters
        self.reservation = reservation(config)
        self.prefixes = PrefixCache(scenario.trace.hash_block_tokens) if config.prefix_caching else None
        self._loader = loader
        # Weights to be merged, or to be laid out, have to be there first.
        self._beside = not (scenario.policies.scheduler().merges or config.own_region)
        self._latency = latency
        self._recorder = recorder
        self._tp = config.tp
        # KV heads are copied once there are more GPUs than heads.
        self._kv_bytes = scenario.model.kv_bytes_per_token // min(self._tp, scenario.model.kv_heads)

    def preload(self, adapter: Adapter) -> None:
        """Have an adapter in HBM from the start, if it fits; nobody waits for it, and no load is counted."""
        if self.region is not None or self.pool.adapter_tokens + adapter.kv_tokens > self.pool.room:
            return
        self.pool.insert(adapter, 0.0)
        self.pool.pin(adapter)
        self.pool.unpin(adapter)
        if self._host is not None:
            self._on_host(adapter)

    def running_tokens(self, step: int) -> int:
        """Token slots of the KV that running requests hold."""
        own_tokens = self.reservation.used_tokens(step) + self.still_tokens
        return own_tokens if self.prefixes is None else own_tokens + self.prefixes.held_tokens

    def kv_tokens(self, step: int) -> int:
        """Token slots of all KV."""
        own_tokens = self.reservation.used_tokens(step) + self.still_tokens
        return own_tokens if self.prefixes is None else own_tokens + self.prefixes.tokens

    def make_room(self, step: int, more: int = 0, keep: Container[int] = ()) -> int:
        """Evict until all KV, all adapters and `more` slots of another one fit; return the slots still short.

        KV that nobody uses goes before adapters that nobody uses.
        """
        pool, prefixes = self.pool, self.prefixes
        kv_tokens = self.reservation.used_tokens(step) + self.still_tokens
        if prefixes is not None:
            beside = more if pool.adapter_capacity is None else 0
            prefixes.evict(beside - pool.free_tokens(kv_tokens + prefixes.tokens))
            kv_tokens += prefixes.tokens
        return pool.make_room(kv_tokens, more, keep)

    def sweep(self, now_s: float) -> None:
        """After requests finished: drop the adapters that nobody keeps."""
        self.pool.sweep()
        if self.region is not None:
            self._flush(now_s)

    def _flush(self, now_s: float) -> None:
        """Pay for the flushes of the region's allocator since the last time: the GPU waits."""
        assert self.region is not None
        flushes = self.region.flushes - self._flushes
        if flushes:
            self._flushes += flushes
            self.stalled_s = max(self.stalled_s, now_s) + flushes * self._latency.flush_s

    # Coming -----------------------------------------------------------------------------

    def admit(
        self, requests: Sequence[Request], step: int, ends: int, now_s: float
    ) -> tuple[float, float, list[Request]]:
        """Give requests their memory, and send for their weights.

        The iteration begins at `step` and ends at step `ends`. Returns when KV is there, when the weights are that
        the replica has to wait for, and who waits for his by himself.
        """
        missing = []
        kv_ready = now_s
        pool, hold = self.pool, self.hold
        for request in requests:
            if self.prefixes is not None:
                self._recorder.prefix_lookup(request)
                self.prefixes.hold(request)
            hold(request, ends)
            if request.host_tokens:
                kv_bytes = request.host_tokens * self._kv_bytes
                kv_ready = self.link.transfer(now_s, self._latency.load.load_s(kv_bytes))
            adapter = request.adapter
            if adapter is None:
                continue
            if adapter in pool:
                self._recorder.adapter_lookup(hit=True)
                pool.pin(adapter)
            else:
                missing.append(adapter)
        # Those that are there are pinned first, so that none of them makes room for another. A region is as
        # the trial found it only until somebody leaves it.
        if self.region is not None and missing:
            self.region.load(dict.fromkeys(missing))
            self._flush(now_s)
        self.make_room(step)
        for adapter in missing:
            self._recorder.adapter_lookup(hit=self._bring(adapter, step, now_s))
        ready = now_s
        if missing and self._eviction.in_turn and now_s == self._left_s:
            ready = self._load_again({adapter.id for adapter in missing}, now_s)
        apart = []
        for request in requests:
            adapter = request.adapter
            if adapter is None or pool.ready_s(adapter) <= now_s:
                continue
            how = self._loader.on_miss(adapter) if self._beside else Miss.STALL
            if how is Miss.ASSIST:
                continue
            if how is Miss.WAIT:
                apart.append(request)
                continue
            ready = max(ready, pool.ready_s(adapter))
            if request.admitted_s < 0.0:
                request.cold_start_s += pool.ready_s(adapter) - now_s
            else:
                request.blocked_s += pool.ready_s(adapter) - now_s
        return kv_ready, ready, apart

    def lands_s(self, request: Request) -> float:
        """When the weights of an admitted request are there."""
        return 0.0 if request.adapter is None else self.pool.ready_s(request.adapter)

    def hold(self, request: Request, step: int) -> None:
        """Charge a request with the KV of its own that it has once prefilled, and with what may still come."""
        context = request.prompt_tokens + request.generated_tokens + 1 - self.shared_tokens(request)
        to_come = request.max_output_tokens - request.generated_tokens - 1
        self.reservation.add(request.id, context, to_come, step)

    def shared_tokens(self, request: Request) -> int:
        """Tokens of a running request whose KV is shared, or can be."""
        return 0 if self.prefixes is None else self.prefixes.shared_tokens(request)

    def share(self, request: Request, step: int) -> None:
        """A request is prefilled: others can use its KV from now on."""
        if self.prefixes is not None:
            self.prefixes.add(request, request.prompt_tokens + request.generated_tokens)
            self.hold_again(request, step)

    def hold_again(self, request: Request, step: int) -> None:
        """Charge anew what was charged at an earlier step."""
        self.reservation.remove(request.id, step)
        self.hold(request, step)

    def stands_still(self, request: Request, step: int) -> None:
        """A request's KV has not grown by the steps that were taken since it was charged."""
        if self.reservation.grows:
            self.hold_again(request, step)

    def own_tokens(self, id: int, step: int) -> int:
        """Slots of the KV of its own that an admitted request holds."""
        found = self._still.get(id)
        return self.reservation.held_tokens(id, step) if found is None else found

    def pause(self, request: Request, step: int) -> None:
        """A request keeps what it holds, and takes no more."""
        tokens = self.reservation.held_tokens(request.id, step)
        self.reservation.remove(request.id, step)
        self._still[request.id] = tokens
        self.still_tokens += tokens

    def resume(self, request: Request, step: int) -> None:
        """A request that was paused is charged by the rule again."""
        self.still_tokens -= self._still.pop(request.id)
        self.hold(request, step)

    def _bring(self, adapter: Adapter, step: int, now_s: float) -> bool:
        """Pin an adapter that was missing; return whether somebody else's load, or no load, was enough."""
        shared = adapter in self.pool
        free = not shared and self._loader.on_miss(adapter) is Miss.FREE
        if not shared:
            short = self.make_room(step, adapter.kv_tokens)
            assert short == 0, f"HBM is {short} token slots too small for adapter {adapter.name}"
            self.pool.insert(adapter, now_s if free else self._fetch(adapter, now_s))
        self.pool.pin(adapter)
        return shared or free

    def _load_again(self, missing: Set[int], now_s: float) -> float:
        """Load those in use that had to make room for the missing ones; return when they are there."""
        gone = [id for id in self._just_left if not self.pool.holds(id)]
        again = self._eviction.reloads(self.pool.pins, missing, gone) if gone else ()
        sizes = [
            adapter.size_bytes
            for adapter in map(self.pool.adapter, again)
            if self._loader.on_miss(adapter) is not Miss.FREE
        ]
        if not sizes:
            return now_s
        # Host memory that holds no more adapters than HBM throws out the same ones.
        from_disk = self._host is not None and self._host_most == self._slots
        self._recorder.adapter_reloads(len(sizes), sum(sizes), from_disk)
        seconds = sum(self._load_s(size_bytes, from_disk) for size_bytes in sizes)
        return self.link.transfer(now_s, seconds)

    def _fetch(self, adapter: Adapter, now_s: float) -> float:
        from_disk = self._host is not None and not self._on_host(adapter)
        self._recorder.adapter_load(adapter.size_bytes, from_disk)
        return self.link.transfer(now_s, self._load_s(adapter.size_bytes, from_disk))

    def _load_s(self, size_bytes: int, from_disk: bool) -> float:
        load, each = self._latency.load, size_bytes // self._tp
        return load.load_s(each) + (load.disk_s(each) if from_disk else 0.0)

    def _on_host(self, adapter: Adapter) -> bool:
        """Whether host memory has it already; it then does, and is the one used last."""
        host = self._host
        assert host is not None
        known = adapter.id in host
        if known:
            del host[adapter.id]
        elif len(host) == self._host_most:
            # What HBM holds too goes last: it is what runs.
            del host[next((id for id in host if not self.pool.holds(id)), next(iter(host)))]
        host[adapter.id] = None
        return known

    def prefetch(self, adapters: Iterable[Adapter], step: int, now_s: float) -> None:
        """Load the missing adapters in the background, as far as they fit beside all that KV will grow into."""
        pool, wanted = self.pool, {adapter.id: adapter for adapter in adapters}
        shared_tokens = 0 if self.prefixes is None else self.prefixes.held_tokens
        for adapter in wanted.values():
            if adapter in pool:
                continue
            if adapter.kv_tokens <= pool.adapter_room(
                self.reservation.peak_tokens(step) + self.still_tokens + shared_tokens, wanted
            ):
                self.make_room(step, adapter.kv_tokens, wanted)
                pool.insert(adapter, self._fetch(adapter, now_s))

    # Going ------------------------------------------------------------------------------

    def release(self, request: Request, step: int, now_s: float) -> None:
        """A request gives back its KV and its hold on its adapter."""
        if request.id in self._still:
            self.still_tokens -= self._still.pop(request.id)
        else:
            self.reservation.remove(request.id, step)
        if self.prefixes is not None:
            self.prefixes.leave(request)
        adapter = request.adapter
        if adapter is None:
            return
        self.pool.unpin(adapter)
        if not self._watched or self.pool.is_pinned(adapter):
            return
        if self._host is not None and adapter.id in self._host:
            self._host[adapter.id] = self._host.pop(adapter.id)
        if self._eviction.in_turn:
            if now_s != self._left_s:
                self._left_s = now_s
                self._just_left.clear()
            self._just_left.add(adapter.id)

    def swap_out(self, tokens: int, now_s: float) -> None:
        """Send KV to the host; the GPU waits until it is there."""
        kv_bytes = tokens * self._kv_bytes
        self.stalled_s = self.link.transfer(now_s, self._latency.load.load_s(kv_bytes))
