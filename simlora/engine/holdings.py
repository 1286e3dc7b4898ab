"""What one replica holds in HBM: the KV of its requests, adapters, and loads on their way."""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence, Set
from math import inf

from simlora.core.adapter import Adapter
from simlora.core.request import Request
from simlora.engine.admission import reservation
from simlora.engine.host_link import HostLink
from simlora.engine.host_memory import HostMemory
from simlora.engine.replica_config import ReplicaConfig
from simlora.engine.scenario import Scenario
from simlora.engine.stores import Stores
from simlora.engine.swapping import Swapping, tree_by_worth
from simlora.engine.transit import Transit
from simlora.latency.models import LatencyModels
from simlora.memory.adapter_region import adapter_region
from simlora.memory.pool import Pool
from simlora.memory.prefix_tree import PrefixTree
from simlora.memory.segments import Segment
from simlora.metrics.recorder import Recorder
from simlora.metrics.tracing import Came, Left
from simlora.policies.eviction.swapper import Swapper
from simlora.policies.loading.base import Loader, Miss


class Holdings:
    """KV slots by the reservation's rule, adapters in the pool, and what `host_link` brings and takes away.

    `step` is the replica's count of decode steps, by which the KV of running requests has grown. `still_tokens` are the
    slots of those who are paused.
    `stalled_s` is until when the GPU waits: for KV on its way to the host, or for its allocator.
    Slots of what leaves for the host are free at once, but nobody can write to them before the copy is done; nor to
    those of an adapter or of KV that is given up on its way, before it would have come.
    """

    __slots__ = (
        "_beside",
        "_eviction",
        "_flushes",
        "_host_memory",
        "_id",
        "_just_left",
        "_kv_ready_s",
        "_latency",
        "_leaving",
        "_left_s",
        "_loader",
        "_overlaps",
        "_recorder",
        "_slots",
        "_still",
        "_watched",
        "host_link",
        "pool",
        "prefixes",
        "region",
        "reservation",
        "stalled_s",
        "still_tokens",
        "swapping",
    )

    def __init__(
        self,
        scenario: Scenario,
        config: ReplicaConfig,
        adapters: Sequence[Adapter],
        loader: Loader,
        latency: LatencyModels,
        recorder: Recorder,
        id: int = 0,
        stores: Stores | None = None,
    ) -> None:
        self._id = id
        self._leaving = Transit()
        self._kv_ready_s: dict[int, float] = {}  # when the KV is there that a request waits for
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
            self._moved if config.prefix_caching or recorder.tracing is not None else None,
        )
        self._just_left: set[int] = set()  # adapters whose last user left at `_left_s`
        self._left_s = -1.0
        self._watched = self._eviction.in_turn or config.host_adapters is not None  # when adapters fall idle
        self._host_memory = HostMemory(config.host_adapters, self.pool) if config.host_adapters else None
        # KV heads are copied once there are more GPUs than heads.
        kv_bytes = scenario.model.kv_bytes_per_token // min(config.tp, scenario.model.kv_heads)
        self.host_link = HostLink(id, latency.load, config.tp, kv_bytes, recorder, self._host_memory, stores)
        self._slots = config.max_adapters
        self.reservation = reservation(config)
        self._loader = loader
        # Weights to be merged, or to be laid out, have to be there first.
        self._beside = not (scenario.policies.merges or config.own_region)
        self._overlaps = loader.overlaps and self._beside
        self._latency = latency
        self._recorder = recorder
        self.prefixes: PrefixTree | None = None
        self.swapping: Swapping | None = None
        if config.prefix_caching:
            policy, block_tokens = self._eviction, scenario.cache_block_tokens
            if isinstance(policy, Swapper):
                kv_s = self.host_link.kv_s
                tree = tree_by_worth(policy, block_tokens, config.host_kv_tokens, kv_s, self._send_out)
                self.swapping = Swapping(policy, tree, self.pool, adapters, self.host_link, self._fetch)
            else:
                tree = PrefixTree(block_tokens, config.host_kv_tokens, send=self._send_out)
            self.prefixes = tree

    def _moved(self, id: int, resident: bool) -> None:
        """An adapter has come into HBM, or has left it."""
        if self.prefixes is not None:
            self.prefixes.adapter(id, resident)
        if self.swapping is not None:
            self.swapping.adapter(id, resident)
        tracing = self._recorder.tracing
        if tracing is not None:
            now_s = tracing.now()
            if resident:
                adapter = self.pool.adapter(id)
                tracing.add(Came(self._id, now_s, adapter, self.pool.ready_s(adapter)))
            else:
                tracing.add(Left(self._id, now_s, id))

    def _send_out(self, tokens: int, now_s: float, there_s: float) -> float:
        """Copy cached KV to the host that is in HBM since `there_s`; return when it lies there.

        What is still on its way from there need not go back, but its slots are written to until it has come.
        """
        if there_s > now_s:
            self._leaving.add(there_s, tokens)
            return now_s
        done_s = self.host_link.send_cached(tokens, now_s)
        self._leaving.add(done_s, tokens)
        return done_s

    def follows(self, failed: Holdings, now_s: float) -> None:
        """These take the place of those of a replica that fails now; what was moved until then counts."""
        self.host_link.follows(failed.host_link, now_s)
        if self.swapping is not None and failed.swapping is not None:
            self.swapping.kv_tokens_in = failed.swapping.kv_tokens_in
        if self.region is not None and failed.region is not None:
            self.region.follows(failed.region)
            self._flushes = self.region.flushes

    def preload(self, adapter: Adapter) -> None:
        """Have an adapter in HBM from the start, if it fits; nobody waits for it, and no load is counted."""
        if self.region is not None or self.pool.adapter_tokens + adapter.kv_tokens > self.pool.room:
            return
        self.pool.insert(adapter, 0.0)
        self.pool.pin(adapter)
        self.pool.unpin(adapter)
        if self._host_memory is not None:
            self._host_memory.use(adapter)

    def running_tokens(self, step: int) -> int:
        """Token slots of the KV that running requests hold."""
        own_tokens = self._own_kv_tokens(step)
        return own_tokens if self.prefixes is None else own_tokens + self.prefixes.held_tokens

    def kv_tokens(self, step: int) -> int:
        """Token slots of all KV."""
        own_tokens = self._own_kv_tokens(step)
        return own_tokens if self.prefixes is None else own_tokens + self.prefixes.tokens

    def _own_kv_tokens(self, step: int) -> int:
        """Token slots of the KV that is not cached: of one request each, running or paused."""
        return self.reservation.used_tokens(step) + self.still_tokens

    def make_room(self, step: int, now_s: float, more: int = 0, keep: Container[int] = ()) -> int:
        """Evict until all KV, all adapters and `more` slots of another one fit; return the slots still short.

        KV that nobody uses goes before adapters that nobody uses, if no policy decides over both.
        """
        pool, prefixes = self.pool, self.prefixes
        if self.swapping is not None:
            short = more - pool.free_tokens(self.kv_tokens(step))
            if short > 0:
                self.swapping.make_room(short, now_s, keep)
                self._leaving.note_given_up(pool, now_s)
            return max(more - pool.free_tokens(self.kv_tokens(step)), 0)
        kv_tokens = self._own_kv_tokens(step)
        if prefixes is not None:
            beside = more if pool.adapter_capacity is None else 0
            prefixes.evict(beside - pool.free_tokens(kv_tokens + prefixes.tokens), now_s)
            kv_tokens += prefixes.tokens
        short = pool.make_room(kv_tokens, more, keep)
        if self._leaving.coming:
            self._leaving.note_given_up(pool, now_s)
        return short

    def room_s(self, step: int, now_s: float, more: int = 0) -> float:
        """When all that is held now, and `more`, can be written: when enough of what leaves for the host has left.

        Whoever asks waits until then: what he waits for is his.
        """
        leaving = self._leaving
        if not leaving:
            return now_s
        leaving.end(now_s)
        short = more + leaving.tokens(now_s) - self.pool.free_tokens(self.kv_tokens(step))
        return leaving.room_s(short, now_s)

    def steps_until_full(self, step: int, now_s: float, most: int) -> int:
        """How many of the next decode steps until KV needs slots that are not free now; from `most` on any number.

        The slots of cached KV count as free where it is dropped by its last use: that can be done later on, as if at
        the step that needed them.
        """
        pool, prefixes = self.pool, self.prefixes
        if prefixes is None or (self.swapping is None and not prefixes.keeps):
            free = pool.free_tokens(self.running_tokens(step))
            most = min(most, self.reservation.steps_until_full(free, step, most))
            if not self._leaving:
                return most
        free = pool.free_tokens(self.kv_tokens(step))
        if self._leaving:
            free -= self._leaving.tokens(now_s)
        most = min(most, self.reservation.steps_until_full(max(free, 0), step, most))
        if self.swapping is not None:
            free = self.swapping.busy_tokens - self.kv_tokens(step) - pool.adapter_tokens
            if free >= 0:
                most = min(most, self.reservation.steps_until_full(free, step, most))
        return most

    def look(self, step: int, before_s: float, now_s: float) -> None:
        """Let the swapper look, if a moment for it has come since the boundary before."""
        if self.swapping is not None and self.swapping.due(before_s, now_s):
            used_tokens = self.kv_tokens(step) + self.pool.adapter_tokens
            self.swapping.look(used_tokens, now_s, lambda more: self.room_s(step, now_s, more))
            self._leaving.note_given_up(self.pool, now_s)

    def look_s(self, step: int, now_s: float) -> float:
        """Return from when on the swapper has something to do, as things are; inf: nothing."""
        swapping = self.swapping
        if swapping is None:
            return inf
        used_tokens = self.kv_tokens(step) + self.pool.adapter_tokens
        return swapping.next_s(now_s, used_tokens) if swapping.has_work(used_tokens) else inf

    def sweep(self, now_s: float) -> None:
        """After requests finished: drop the adapters that nobody keeps."""
        self.pool.sweep()
        if self._leaving.coming:
            self._leaving.note_given_up(self.pool, now_s)
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
        comes: list[list[Segment]] = []
        pool, hold = self.pool, self.hold
        for request in requests:
            if self.prefixes is not None:
                self._recorder.prefix_lookup(request)
                if segments := self.prefixes.hold(request, now_s):
                    comes.append(segments)
            hold(request, ends)
            adapter = request.adapter
            if self.swapping is not None:
                self.swapping.wanted(adapter, now_s)
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
        self.make_room(step, now_s)
        # Before adapters ask for theirs: they may be waited for by fewer.
        room_s = self.room_s(step, now_s) if self._leaving else now_s
        for adapter in missing:
            self._recorder.adapter_lookup(hit=self._bring(adapter, step, now_s))
        self._bring_kv(requests, comes, room_s)
        ready = now_s
        if missing and self._eviction.in_turn and now_s == self._left_s:
            ready = self._load_again({adapter.id for adapter in missing}, now_s)
        apart, kv_s = [], room_s
        for request in requests:
            adapter = request.adapter
            lands_s = now_s if adapter is None else max(pool.ready_s(adapter), now_s)
            own_kv_s = self._kv_ready_s.get(request.id, now_s)
            if own_kv_s > now_s and self._overlaps:
                apart.append(request)
                continue
            kv_s = max(kv_s, own_kv_s)
            if request.admitted_s < 0.0:
                request.kv_cold_start_s += max(own_kv_s - lands_s, 0.0)
            if adapter is None or lands_s == now_s:
                continue
            how = self._loader.on_miss(adapter) if self._beside else Miss.STALL
            if how is Miss.ASSIST:
                continue
            if how is Miss.WAIT:
                apart.append(request)
                continue
            ready = max(ready, lands_s)
            if request.admitted_s < 0.0:
                request.cold_start_s += lands_s - now_s
            else:
                request.blocked_s += lands_s - now_s
        return kv_s, ready, apart

    def _bring_kv(self, requests: Sequence[Request], comes: Sequence[list[Segment]], begin_s: float) -> None:
        """Send for the KV on the host that requests begin with, from then on; note when each has all of his."""
        prefixes = self.prefixes
        for segments in comes:
            assert prefixes is not None
            tokens = sum(map(prefixes.size, segments))
            there_s = max(
                begin_s, *(segment.ready_s for segment in segments)
            )  # the copies to the host are done
            ready_s = self.host_link.bring_cached(tokens, there_s)
            for segment in segments:
                segment.ready_s = ready_s
        for request in requests:
            ready_s = begin_s
            if request.host_tokens:
                ready_s = self.host_link.bring_kv(request.host_tokens, begin_s)
            if prefixes is not None:
                ready_s = max(ready_s, prefixes.ready_s(request))
            self._kv_ready_s[request.id] = ready_s

    def lands_s(self, request: Request) -> float:
        """When the weights of an admitted request are there."""
        return 0.0 if request.adapter is None else self.pool.ready_s(request.adapter)

    def ready_s(self, request: Request) -> float:
        """When an admitted request can begin: its weights and its KV are there."""
        return max(self.lands_s(request), self._kv_ready_s[request.id])

    def hold(self, request: Request, step: int) -> None:
        """Charge a request with the KV of its own that it has once prefilled, and with what may still come."""
        context = request.prompt_tokens + request.generated_tokens + 1 - self.shared_tokens(request)
        to_come = request.max_output_tokens - request.generated_tokens - 1
        self.reservation.add(request.id, context, to_come, step)

    def shared_tokens(self, request: Request) -> int:
        """Tokens of a running request whose KV is shared, or can be."""
        return 0 if self.prefixes is None else self.prefixes.shared_tokens(request)

    def share(self, request: Request, step: int, now_s: float) -> None:
        """A request is prefilled: others can use its KV from now on."""
        if self.prefixes is not None:
            self.prefixes.add(request, request.prompt_tokens + request.generated_tokens, now_s)
            self.hold_again(request, step)

    def hold_again(self, request: Request, step: int) -> None:
        """Charge anew what was charged at an earlier step."""
        self.reservation.remove(request.id, step)
        self.hold(request, step)

    def stands_still(self, request: Request, step: int) -> None:
        """A request's KV has not grown by the steps that were taken since it was charged."""
        if self.reservation.grows:
            self.hold_again(request, step)

    def wait_apart(self, requests: Sequence[Request], step: int, now_s: float) -> None:
        """Admitted requests do not begin with the others; they have the slot of their first token from now on."""
        for request in requests:
            self.stands_still(request, step)
        self.make_room(step, now_s)
        room_s = self.room_s(step, now_s)
        for request in requests:
            self._kv_ready_s[request.id] = max(self._kv_ready_s[request.id], room_s)

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
            short = self.make_room(step, now_s, adapter.kv_tokens)
            assert short == 0, f"HBM is {short} token slots too small for adapter {adapter.name}"
            begin_s = self._adapter_room_s(adapter, step, now_s)
            self.pool.insert(adapter, begin_s if free else self._fetch(adapter, begin_s))
        self.pool.pin(adapter)
        return shared or free

    def _adapter_room_s(self, adapter: Adapter, step: int, now_s: float) -> float:
        """When an adapter that is about to come can be written."""
        if not self._leaving or self.pool.adapter_capacity is not None:
            return now_s
        return self.room_s(step, now_s, adapter.kv_tokens)

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
        from_disk = self._host_memory is not None and self._host_memory.capacity == self._slots
        return self.host_link.load_again(sizes, from_disk, now_s)

    def _fetch(self, adapter: Adapter, now_s: float) -> float:
        """Send for an adapter; return when it lands."""
        ready_s = self.host_link.load(adapter, now_s)
        if self.pool.adapter_capacity is None and self.region is None:  # KV takes what adapters leave
            self._leaving.comes(adapter.id, ready_s, adapter.kv_tokens)
        return ready_s

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
                self.make_room(step, now_s, adapter.kv_tokens, wanted)
                pool.insert(adapter, self._fetch(adapter, self._adapter_room_s(adapter, step, now_s)))

    # Going ------------------------------------------------------------------------------

    def release(self, request: Request, step: int, now_s: float) -> None:
        """A request gives back its KV and its hold on its adapter."""
        if request.id in self._still:
            self.still_tokens -= self._still.pop(request.id)
        else:
            self.reservation.remove(request.id, step)
        del self._kv_ready_s[request.id]
        if self.prefixes is not None:
            self.prefixes.leave(request, now_s)
        adapter = request.adapter
        if adapter is None:
            return
        self.pool.unpin(adapter)
        if self.swapping is not None:
            self.swapping.left(adapter)
        if not self._watched or self.pool.is_pinned(adapter):
            return
        if self._host_memory is not None:
            self._host_memory.left(adapter)
        if self._eviction.in_turn:
            if now_s != self._left_s:
                self._left_s = now_s
                self._just_left.clear()
            self._just_left.add(adapter.id)

    def swap_out(self, tokens: int, now_s: float) -> None:
        """Send KV to the host; the GPU waits until it is there."""
        self.stalled_s = self.host_link.send_kv(tokens, now_s)
