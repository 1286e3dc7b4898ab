"""What is on its way into one replica's HBM: adapters, and KV from the host; and who waits for it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set
from typing import NamedTuple

from simlora.core.adapter import Adapter
from simlora.core.request import Request
from simlora.engine.holdings import Holdings
from simlora.engine.replica_config import ReplicaConfig
from simlora.memory.segments import Segment
from simlora.metrics.recorder import Recorder
from simlora.policies.loading.base import Loader, Miss


class Coming(NamedTuple):
    """When what a prefill needs is there: its KV, and the weights that the replica has to wait for.

    `apart` are the requests that wait by themselves.
    """

    kv_s: float
    weights_s: float
    apart: list[Request]


class Incoming:
    """Gives requests their memory in `holdings`, and sends for what they need that is not there.

    `merges`: whether weights are to be merged. `step` is the replica's count of decode steps, as in `holdings`.
    """

    __slots__ = (
        "_beside",
        "_holdings",
        "_just_left",
        "_kv_ready_s",
        "_left_s",
        "_loader",
        "_overlaps",
        "_recorder",
        "_slots",
        "_watched",
    )

    def __init__(
        self, holdings: Holdings, config: ReplicaConfig, loader: Loader, merges: bool, recorder: Recorder
    ) -> None:
        self._holdings, self._loader, self._recorder = holdings, loader, recorder
        self._kv_ready_s: dict[int, float] = {}  # when the KV is there that a request waits for
        # Weights to be merged, or to be laid out, have to be there first.
        self._beside = not (merges or config.own_region)
        self._overlaps = loader.overlaps and self._beside
        self._slots = config.max_loras
        self._just_left: set[int] = set()  # adapters whose last user left at `_left_s`
        self._left_s = -1.0
        self._watched = (
            holdings.eviction.evicts_in_use or holdings.host_memory is not None
        )  # when adapters fall idle

    def preload(self, adapter: Adapter) -> None:
        """Have an adapter in HBM from the start, if it fits; nobody waits for it, and no load is counted."""
        holdings, pool = self._holdings, self._holdings.pool
        if holdings.region is not None or pool.adapter_tokens + adapter.kv_tokens > pool.room:
            return
        pool.insert(adapter, 0.0)
        pool.pin(adapter)
        pool.unpin(adapter)
        if holdings.host_memory is not None:
            holdings.host_memory.use(adapter)

    def prefetch(self, adapters: Iterable[Adapter], step: int, now_s: float) -> None:
        """Load the missing adapters in the background, as far as they fit beside all that KV will grow into."""
        holdings, pool = self._holdings, self._holdings.pool
        wanted = {adapter.id: adapter for adapter in adapters}
        shared_tokens = 0 if holdings.prefixes is None else holdings.prefixes.held_tokens
        for adapter in wanted.values():
            if adapter in pool:
                continue
            kv_tokens = holdings.reservation.peak_tokens(step) + holdings.still_tokens + shared_tokens
            if adapter.kv_tokens <= pool.adapter_room(kv_tokens, wanted):
                holdings.make_room(step, now_s, adapter.kv_tokens, wanted)
                pool.insert(adapter, holdings.fetch(adapter, self._room_s(adapter, step, now_s)))

    # A prefill --------------------------------------------------------------------------

    def admit(self, requests: Sequence[Request], step: int, ends: int, now_s: float) -> Coming:
        """Give requests their memory, and send for their weights and KV.

        The iteration begins at `step` and ends at step `ends`.
        """
        holdings = self._holdings
        missing, segments = self._take_memory(requests, ends, now_s)
        # A region is as the trial found it only until somebody leaves it.
        holdings.lay_out(missing, now_s)
        holdings.make_room(step, now_s)
        # Before adapters ask for theirs: they may be waited for by fewer.
        room_s = holdings.room_s(step, now_s)
        for adapter in missing:
            self._recorder.adapter_lookup(hit=self._bring(adapter, step, now_s))
        self._bring_kv(requests, segments, room_s)
        weights_s = now_s
        if missing and holdings.eviction.evicts_in_use and now_s == self._left_s:
            weights_s = self._load_again({adapter.id for adapter in missing}, now_s)
        return self._waits(requests, room_s, weights_s, now_s)

    def _take_memory(
        self, requests: Sequence[Request], ends: int, now_s: float
    ) -> tuple[list[Adapter], list[list[Segment]]]:
        """Charge requests, and pin their adapters that are there, so that none of them makes room for another.

        Return the adapters that are missing, and the cached KV on the host that requests begin with.
        """
        missing: list[Adapter] = []
        comes: list[list[Segment]] = []
        holdings = self._holdings
        pool, prefixes, hold = holdings.pool, holdings.prefixes, holdings.hold
        for request in requests:
            if prefixes is not None:
                self._recorder.prefix_lookup(request)
                if segments := prefixes.hold(request, now_s):
                    comes.append(segments)
            hold(request, ends)
            adapter = request.adapter
            if holdings.swapping is not None:
                holdings.swapping.wanted(adapter, now_s)
            if adapter is None:
                continue
            if adapter in pool:
                self._recorder.adapter_lookup(hit=True)
                pool.pin(adapter)
            else:
                missing.append(adapter)
        return missing, comes

    def _bring(self, adapter: Adapter, step: int, now_s: float) -> bool:
        """Pin an adapter that was missing; return whether somebody else's load, or no load, was enough."""
        holdings, pool = self._holdings, self._holdings.pool
        shared = adapter in pool
        free = not shared and self._loader.on_miss(adapter) is Miss.FREE
        if not shared:
            short = holdings.make_room(step, now_s, adapter.kv_tokens)
            assert short == 0, f"HBM is {short} token slots too small for adapter {adapter.name}"
            begin_s = self._room_s(adapter, step, now_s)
            pool.insert(adapter, begin_s if free else holdings.fetch(adapter, begin_s))
        pool.pin(adapter)
        return shared or free

    def _room_s(self, adapter: Adapter, step: int, now_s: float) -> float:
        """When an adapter that is about to come can be written."""
        holdings = self._holdings
        if holdings.pool.adapter_capacity is not None:
            return now_s
        return holdings.room_s(step, now_s, adapter.kv_tokens)

    def _bring_kv(self, requests: Sequence[Request], comes: Sequence[list[Segment]], begin_s: float) -> None:
        """Send for the KV on the host that requests begin with, from then on; note when each has all of his."""
        prefixes, link = self._holdings.prefixes, self._holdings.host_link
        for segments in comes:
            assert prefixes is not None
            # Once the copies to the host are done.
            there_s = max(begin_s, *(segment.ready_s for segment in segments))
            ready_s = link.bring_cached(sum(map(prefixes.size, segments)), there_s)
            for segment in segments:
                segment.ready_s = ready_s
        for request in requests:
            ready_s = begin_s
            if request.host_tokens:
                ready_s = link.bring_kv(request.host_tokens, begin_s)
            if prefixes is not None:
                ready_s = max(ready_s, prefixes.ready_s(request))
            self._kv_ready_s[request.id] = ready_s

    def _load_again(self, missing: Set[int], now_s: float) -> float:
        """Load those in use that had to make room for the missing ones; return when they are there."""
        holdings, pool = self._holdings, self._holdings.pool
        gone = [id for id in self._just_left if not pool.holds(id)]
        again = holdings.eviction.reloads(pool.pins, missing, gone) if gone else ()
        sizes = [
            adapter.size_bytes
            for adapter in map(pool.adapter, again)
            if self._loader.on_miss(adapter) is not Miss.FREE
        ]
        if not sizes:
            return now_s
        # Host memory that holds no more adapters than HBM throws out the same ones.
        memory = holdings.host_memory
        from_disk = memory is not None and memory.capacity == self._slots
        return holdings.host_link.load_again(sizes, from_disk, now_s)

    def _waits(self, requests: Sequence[Request], kv_s: float, weights_s: float, now_s: float) -> Coming:
        """Say who waits, at least until then, and count what requests wait that begin with the others."""
        apart: list[Request] = []
        pool = self._holdings.pool
        for request in requests:
            adapter = request.adapter
            lands_s = now_s if adapter is None else max(pool.ready_s(adapter), now_s)
            own_kv_s = self._kv_ready_s[request.id]
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
            weights_s = max(weights_s, lands_s)
            if request.admitted_s < 0.0:
                request.cold_start_s += lands_s - now_s
            else:
                request.blocked_s += lands_s - now_s
        return Coming(kv_s, weights_s, apart)

    # An admitted request ----------------------------------------------------------------

    def lands_s(self, request: Request) -> float:
        """When the weights of an admitted request are there."""
        return 0.0 if request.adapter is None else self._holdings.pool.ready_s(request.adapter)

    def ready_s(self, request: Request) -> float:
        """When an admitted request can begin: its weights and its KV are there."""
        return max(self.lands_s(request), self._kv_ready_s[request.id])

    def wait_apart(self, requests: Sequence[Request], step: int, now_s: float) -> None:
        """Admitted requests do not begin with the others; they have the slot of their first token from now on."""
        holdings = self._holdings
        for request in requests:
            holdings.stands_still(request, step)
        holdings.make_room(step, now_s)
        room_s = holdings.room_s(step, now_s)
        for request in requests:
            self._kv_ready_s[request.id] = max(self._kv_ready_s[request.id], room_s)

    def left(self, request: Request, now_s: float) -> None:
        """An admitted request has given back what it held; its adapter may have no other user."""
        del self._kv_ready_s[request.id]
        adapter, holdings = request.adapter, self._holdings
        if not self._watched or adapter is None or holdings.pool.is_pinned(adapter):
            return
        if holdings.host_memory is not None:
            holdings.host_memory.left(adapter)
        if holdings.eviction.evicts_in_use:
            if now_s != self._left_s:
                self._left_s = now_s
                self._just_left.clear()
            self._just_left.add(adapter.id)
