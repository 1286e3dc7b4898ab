"""What one replica holds in HBM: the KV of its requests, and adapters."""

from __future__ import annotations

from collections.abc import Container, Sequence
from math import inf

from simlora.core.adapter import Adapter
from simlora.core.request import Request
from simlora.engine.admission import reservation
from simlora.engine.host_link import HostLink
from simlora.engine.host_memory import HostMemory
from simlora.engine.interfaces import AdapterSource
from simlora.engine.replica_config import ReplicaConfig
from simlora.engine.scenario import Scenario
from simlora.engine.swapping import Swapping, tree_by_worth
from simlora.engine.transit import Transit
from simlora.latency.models import LatencyModels
from simlora.memory.adapter_region import adapter_region
from simlora.memory.pool import Pool
from simlora.memory.prefix_tree import PrefixTree
from simlora.metrics.recorder import Recorder
from simlora.metrics.tracing import Came, Left
from simlora.policies.eviction.swapper import Swapper


class Holdings:
    """KV slots by the reservation's rule, adapters in the pool, and what leaves for the host over `host_link`.

    What comes, and who waits for it, is in `engine/incoming.py`.

    `step` is the replica's count of decode steps, by which the KV of running requests has grown. `still_tokens` are the
    slots of those who are paused.
    `stalled_s` is until when the GPU waits: for KV on its way to the host, or for its allocator.
    Slots of what leaves for the host are free at once, but nobody can write to them before the copy is done; nor to
    those of an adapter or of KV that is given up on its way, before it would have come.
    """

    __slots__ = (
        "_flushes",
        "_id",
        "_latency",
        "_leaving",
        "_recorder",
        "_still",
        "eviction",
        "host_link",
        "host_memory",
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
        latency: LatencyModels,
        recorder: Recorder,
        id: int = 0,
        stores: AdapterSource | None = None,
    ) -> None:
        self._id = id
        self._leaving = Transit()
        self._still: dict[int, int] = {}  # the slots of those who are paused, by request
        self.still_tokens = 0
        self.stalled_s = 0.0
        self._flushes = 0
        self.region = (
            adapter_region(config.adapter_memory, config.adapter_region_tokens) if config.own_region else None
        )
        self.eviction = scenario.policies.eviction()
        self.pool = Pool(
            config.kv_token_budget,
            self.eviction.victims,
            self.region,
            config.adapter_region_tokens if config.divided else None,
            self._moved if config.prefix_caching or recorder.tracing is not None else None,
        )
        self.host_memory = HostMemory(config.max_cpu_loras, self.pool) if config.max_cpu_loras else None
        # KV heads are copied once there are more GPUs than heads.
        kv_bytes = scenario.model.kv_bytes_per_token // min(config.tp, scenario.model.kv_heads)
        self.host_link = HostLink(id, latency.load, config.tp, kv_bytes, recorder, self.host_memory, stores)
        self.reservation = reservation(config)
        self._latency = latency
        self._recorder = recorder
        self.prefixes: PrefixTree | None = None
        self.swapping: Swapping | None = None
        if config.prefix_caching:
            policy, block_size = self.eviction, scenario.cache_block_tokens
            if isinstance(policy, Swapper):
                kv_s = self.host_link.kv_s
                tree = tree_by_worth(policy, block_size, config.host_kv_tokens, kv_s, self._send_out)
                self.swapping = Swapping(policy, tree, self.pool, adapters, self.host_link, self.fetch)
            else:
                tree = PrefixTree(block_size, config.host_kv_tokens, send=self._send_out)
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

    def fetch(self, adapter: Adapter, now_s: float) -> float:
        """Send for an adapter; return when it lands."""
        ready_s = self.host_link.load(adapter, now_s)
        if self.pool.adapter_capacity is None and self.region is None:  # KV takes what adapters leave
            self._leaving.comes(adapter.id, ready_s, adapter.kv_tokens)
        return ready_s

    def lay_out(self, missing: Sequence[Adapter], now_s: float) -> None:
        """Lay the missing adapters of a prefill out, if adapters have memory of their own."""
        if self.region is not None and missing:
            self.region.load(dict.fromkeys(missing))
            self._flush(now_s)

    def _flush(self, now_s: float) -> None:
        """Pay for the flushes of the region's allocator since the last time: the GPU waits."""
        assert self.region is not None
        flushes = self.region.flushes - self._flushes
        if flushes:
            self._flushes += flushes
            self.stalled_s = max(self.stalled_s, now_s) + flushes * self._latency.flush_s

    # One request's KV -------------------------------------------------------------------

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

    def release(self, request: Request, step: int, now_s: float) -> None:
        """A request gives back its KV and its hold on its adapter."""
        if request.id in self._still:
            self.still_tokens -= self._still.pop(request.id)
        else:
            self.reservation.remove(request.id, step)
        if self.prefixes is not None:
            self.prefixes.leave(request, now_s)
        adapter = request.adapter
        if adapter is None:
            return
        self.pool.unpin(adapter)
        if self.swapping is not None:
            self.swapping.left(adapter)

    def swap_out(self, tokens: int, now_s: float) -> None:
        """Send KV to the host; the GPU waits until it is there."""
        self.stalled_s = self.host_link.send_kv(tokens, now_s)
