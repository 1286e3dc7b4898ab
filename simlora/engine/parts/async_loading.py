"""Loads beside the running batch: a request waits for its own weights, and for its KV from the host."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from heapq import heappop, heappush
from math import inf

from simlora.core.adapter import Adapter
from simlora.core.errors import not_defined
from simlora.core.request import Request
from simlora.engine.replica.adapter_loader import AdapterLoader, LoadPlan, charge_wait
from simlora.engine.replica.decode_window import DecodeWindow
from simlora.engine.replica.host_link import HostLink
from simlora.engine.replica.kv_cache_manager import InFlightKV
from simlora.engine.replica.part import Part
from simlora.engine.replica.replica import Replica
from simlora.engine.replica.request_table import RequestStatus
from simlora.engine.replica.scheduler_view import SchedulerView
from simlora.memory.adapter_cache import DividedAdapterCache
from simlora.metrics.recorder import Recorder
from simlora.policies.loading.base import Loader, Miss
from simlora.policies.scheduling.base import SchedulerOutput


class OverlappedLoader(AdapterLoader):
    """Copies weights and KV while iterations run.

    `beside`: weights may come while the batch runs; not so where they are merged, or laid out in memory of their own.
    `writable_s` is when all slots can be written of the requests that were admitted, and then deferred, last.
    """

    def __init__(
        self, kv: InFlightKV, link: HostLink, policy: Loader, recorder: Recorder, beside: bool
    ) -> None:
        super().__init__(kv, link, policy, recorder)
        self._in_flight = kv
        self._beside = beside
        self.writable_s = 0.0
        self._kv_ready_s: dict[int, float] = {}  # when the KV that an admitted request waits for is there

    def _load(self, requests: Sequence[Request], missing: Sequence[Adapter], now_s: float) -> LoadPlan:
        # Before adapters claim theirs: fewer requests may have to wait for those.
        self.writable_s = writable_s = self._in_flight.claim_writable_s(now_s)
        for adapter in missing:
            self._bring(adapter, now_s)
        kv_s = self._in_flight.bring(requests, writable_s)
        for place, request in enumerate(requests):
            self._kv_ready_s[request.id] = kv_s[place]
        weights_s = now_s
        for reload in self.reload:
            weights_s = reload(missing, now_s)
        return self._plan(requests, writable_s, weights_s, now_s)

    def _plan(self, requests: Sequence[Request], kv_s: float, weights_s: float, now_s: float) -> LoadPlan:
        """Return which requests are deferred, and when the others have what they need, not before `kv_s`.

        Their waits are counted.
        """
        deferred: list[Request] = []
        overlaps = self.policy.overlaps and self._beside
        for request in requests:
            adapter = request.adapter
            own_s = now_s if adapter is None else max(self._cache.ready_s[adapter.id], now_s)
            own_kv_s = self._kv_ready_s[request.id]
            if own_kv_s > now_s and overlaps:
                deferred.append(request)
                continue
            kv_s = max(kv_s, own_kv_s)
            if request.admitted_s < 0.0:
                request.kv_cold_start_s += max(own_kv_s - own_s, 0.0)
            if adapter is None or own_s == now_s:
                continue
            miss = self.policy.on_miss(adapter) if self._beside else Miss.STALL
            if miss is Miss.WAIT:
                deferred.append(request)
            elif miss is not Miss.ASSIST:
                weights_s = max(weights_s, own_s)
                charge_wait(request, own_s - now_s)
        return LoadPlan(kv_s, weights_s, deferred)

    def load(self, adapter: Adapter, now_s: float, free: bool = False, since_s: float | None = None) -> None:
        """Load an adapter as soon as its slots can be written; a `free` load takes no time from then on.

        Where they can be written now, the copy has gone on `since_s`.
        """
        divided = isinstance(self._cache, DividedAdapterCache)
        ready_s = now_s if divided else self._in_flight.claim_writable_s(now_s, adapter.kv_tokens)
        if since_s is not None and ready_s == now_s:
            ready_s = since_s
        if not free:
            ready_s = self._link.load(adapter, ready_s)
            self._in_flight.expect(adapter, ready_s)
        self._cache.insert(adapter, ready_s)

    def prefetch(self, adapters: Iterable[Adapter], now_s: float) -> None:
        """Load the missing adapters in the background, as far as they fit beside all that KV will grow into."""
        kv, cache = self._in_flight, self._cache
        wanted = {adapter.id: adapter for adapter in adapters}
        for adapter in wanted.values():
            if adapter in cache:
                continue
            if adapter.kv_tokens <= cache.adapter_room(kv.peak_tokens(), wanted):
                kv.make_room(now_s, adapter.kv_tokens, wanted)
                self.load(adapter, now_s)

    def fetch(self, adapter: Adapter, since_s: float, now_s: float) -> bool:
        """Load a missing adapter that was asked for at `since_s`, before this boundary; return whether it fits.

        It has to fit beside all adapters, and all that KV will grow into. The copy has gone on since it was asked for,
        unless cached KV leaves for it.
        """
        kv, cache = self._in_flight, self._cache
        if adapter.kv_tokens > cache.adapter_room(kv.peak_tokens(), cache.ready_s):
            return False
        divided = isinstance(cache, DividedAdapterCache)
        if not divided and adapter.kv_tokens > cache.free_tokens(kv.tokens()):
            if kv.make_room(now_s, adapter.kv_tokens):
                return False
            since_s = now_s
        self.load(adapter, now_s, since_s=since_s)
        return True

    def ready_s(self, request: Request) -> float:
        return max(self.weights_s(request), self._kv_ready_s[request.id])

    def defer(self, requests: Iterable[Request], step: int, now_s: float) -> None:
        """Admitted requests do not begin with the others; the slots of their first tokens are theirs from now on."""
        for request in requests:
            self._in_flight.hold_growth(request, step)
        self._in_flight.make_room(now_s)
        writable_s = self._in_flight.claim_writable_s(now_s)
        self.writable_s = max(self.writable_s, writable_s)
        for request in requests:
            self._kv_ready_s[request.id] = max(self._kv_ready_s[request.id], writable_s)

    def give_up(self, request: Request, step: int, now_s: float, until_s: float = 0.0) -> None:
        """An admitted request will give back its slots, maybe before the KV is there that it waits for.

        `until_s` is when another copy into them ends.
        """
        tokens = self._in_flight.own_tokens(request, step)
        self._in_flight.give_up(tokens, max(self._kv_ready_s[request.id], until_s), now_s)

    def release(self, request: Request) -> None:
        """An admitted request has given back its memory."""
        del self._kv_ready_s[request.id]


class InFlightCopies(Part):
    """Lets the next decode step wait for slots that a copy still uses, and ends what the loader keeps of a request."""

    def __init__(self, replica: Replica, kv: InFlightKV, loader: OverlappedLoader) -> None:
        self._replica, self._kv, self._loader = replica, kv, loader

    def on_release(self, request: Request, now_s: float) -> None:
        self._loader.release(request)

    def after_decode(self, now_s: float) -> None:
        writable_s = self._kv.claim_writable_s(now_s)
        if writable_s > now_s:
            self._replica.stall(writable_s)

    def on_sweep(self, now_s: float) -> None:
        self._kv.note_given_up(now_s)


class Wait:
    """A request that waits from `since_s` until `ready_s`, the `number`-th of its replica; `over`: it is taken."""

    __slots__ = ("number", "over", "ready_s", "request", "since_s")

    def __init__(self, request: Request, number: int, since_s: float, ready_s: float) -> None:
        self.request, self.number, self.over = request, number, False
        self.since_s, self.ready_s = since_s, ready_s


class Deferring(Part):
    """Keeps admitted requests that wait for copies of their own, with their seat and memory, while others run.

    `next_ready_s` is when the next of these copies ends, or the end of one that has ended, whose request is not taken
    yet; inf: no request waits. Adding, finding ready and taking cost O(log n) a request.
    """

    def __init__(self, replica: Replica, status: RequestStatus) -> None:
        self._replica, self._table, self._status = replica, replica.table, status
        self._held, others = replica.table.held[status], replica.table.held
        self._paused, self._prefilling = others[RequestStatus.PAUSED], others[RequestStatus.PREFILLING]
        self._waits: dict[int, Wait] = {}  # by request
        self._coming: list[tuple[float, int, Wait]] = []  # heaps: of copies under way, by their ends,
        self._ready: list[tuple[int, Wait]] = []  # and of those that have ended, in order of admission
        self._added = 0
        self.next_ready_s = inf
        self._table.stops[status] = self.stop
        self._schedule, replica.ask = replica.ask, self.ask

    def ask(self, view: SchedulerView) -> SchedulerOutput:
        """Ask the scheduler, unless there are only requests whose copies are under way."""
        table = self._table
        asks = table.batch.members or table.queue.count or self._paused or self._prefilling
        return self._schedule(view) if asks else SchedulerOutput()

    def add(self, request: Request, now_s: float, ready_s: float) -> None:
        """A request waits from now until then."""
        self._table.set_status(request, self._status)
        self._added += 1
        wait = self._waits[request.id] = Wait(request, self._added, now_s, ready_s)
        heappush(self._coming, (ready_s, wait.number, wait))
        self.next_ready_s = min(self.next_ready_s, ready_s)

    def take(self, request: Request, now_s: float) -> float:
        """Take a request out, now or before it is ready; return how long it has waited."""
        wait = self._waits.pop(request.id)
        wait.over = True
        self._table.clear_status(request, self._status)
        ready, coming = self._ready, self._coming
        while ready and ready[0][1].over:
            heappop(ready)
        while coming and coming[0][2].over:
            heappop(coming)
        self.next_ready_s = ready[0][1].ready_s if ready else coming[0][0] if coming else inf
        return min(now_s, wait.ready_s) - wait.since_s

    def leave_out(self, ids: Collection[int]) -> None:
        """Take deferred requests out of the prefill that is being admitted."""
        output, prefill = self._replica.output, self._table.prefill
        kept = [index for index, request in enumerate(prefill) if request.id not in ids]
        self._table.prefill = tuple(prefill[index] for index in kept)
        chunks = output.chunks and tuple(output.chunks[index] for index in kept)
        self._replica.output = output.replace(prefill=self._table.prefill, chunks=chunks)

    def next_ready(self, now_s: float) -> Request | None:
        """Return the first in order of admission of the requests whose copies have ended; None: there is none."""
        ready, coming = self._ready, self._coming
        while coming and coming[0][0] <= now_s:
            _, number, wait = heappop(coming)
            if not wait.over:
                heappush(ready, (number, wait))
        return ready[0][1].request if ready else None

    def awaits(self) -> bool:
        return bool(self._waits)

    def stop(self, request: Request, now_s: float) -> bool:
        """A request is taken away; return whether it has been prefilled."""
        raise not_defined(self, "stop")

    def next_s(self) -> float:
        return self.next_ready_s

    def steps(self, most: int) -> int:
        # A waiting request is tried as if the deferred ones went on, so the scheduler is asked at every step.
        return min(most, 1) if self._waits and self._table.queue.count else most

    def before_last_step(self, window: DecodeWindow, steps: int, now_s: float) -> None:
        if self._table.kv.reservation.grows:
            for request in self._held.values():
                self._table.kv.hold_growth(request, self._table.batch.step + 1)


class AsyncLoading(Deferring):
    """Requests whose prefill waits for their weights or KV (LOADING_ADAPTER). Source: Punica §5.2; FastLibra §4.3."""

    def __init__(self, replica: Replica, loader: OverlappedLoader, chunks: bool) -> None:
        super().__init__(replica, RequestStatus.LOADING_ADAPTER)
        self._loader, self._chunks = loader, chunks

    def on_plan(self, plan: LoadPlan, now_s: float) -> None:
        """Take the deferred requests out of the prefill, and wait for weights that the running batch needs."""
        replica, table = self._replica, self._table
        if plan.deferred:
            self._loader.defer(plan.deferred, table.batch.step, now_s)
            for request in plan.deferred:
                self.add(request, now_s, self._loader.ready_s(request))
            self.leave_out({request.id for request in plan.deferred})
        # With no prefill left, it is the running batch that uses weights that are on their way.
        if plan.weights_s > now_s and not table.prefill:
            replica.stall(plan.weights_s)

    def take_ready(self, now_s: float) -> tuple[Request, ...]:
        """Return as many of the requests that can begin as one prefill takes."""
        begin: list[Request] = []
        tokens = 0
        while self.next_ready_s <= now_s and (request := self.next_ready(now_s)) is not None:
            tokens += request.prefill_tokens
            if begin and tokens > self._replica.config.max_num_batched_tokens:
                break
            self._waited(request, now_s)
            begin.append(request)
        if self._chunks:  # the scheduler decides how much of each is prefilled
            for request in begin:
                self._table.set_status(request, RequestStatus.PREFILLING)
            return ()
        return tuple(begin)

    def stop(self, request: Request, now_s: float) -> bool:
        self._loader.give_up(request, self._table.batch.step, now_s)
        self._waited(request, now_s)
        return False

    def _waited(self, request: Request, now_s: float) -> None:
        waited_s, loader = self.take(request, now_s), self._loader
        self._table.stats.waited(request, waited_s, now_s, loader.weights_s(request), loader.ready_s(request))
