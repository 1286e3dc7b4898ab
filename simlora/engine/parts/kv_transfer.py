"""Prefill and decode on different replicas: one keeps a request's KV until the other has fetched it."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import partial
from math import inf, nan
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from simlora.core.request import Request
from simlora.engine.clock import STORE, Clock
from simlora.engine.parts.async_loading import Deferring, OverlappedLoader
from simlora.engine.replica.link import Link, together
from simlora.engine.replica.part import Part
from simlora.engine.replica.replica import Replica
from simlora.engine.replica.request_table import RequestStatus
from simlora.engine.scenario import Scenario
from simlora.memory.reservation import Pausable
from simlora.policies.placement.replicate_all import ReplicateAll


class Handovers(NamedTuple):
    """What was handed over `[requests]`: by which replica, and from when until when the KV was copied, NaN: not yet."""

    request: NDArray[np.int64]
    source: NDArray[np.int64]
    begin_s: NDArray[np.float64]
    end_s: NDArray[np.float64]


class Kept:
    """The KV of a request, in tokens, the part that keeps it, and its place in the log."""

    __slots__ = ("place", "source", "tokens")

    def __init__(self, source: KvSending, tokens: int, place: int) -> None:
        self.source, self.tokens, self.place = source, tokens, place


class KvTransfers:
    """The KV that prefill replicas keep, and the links over which decode replicas fetch it: each has one each way.

    `bytes_s` is how long so many bytes take a link, `kv_bytes` `[replicas]` what the KV of a token takes on each GPU of
    a replica; each of these GPUs has a link. `hand_over` takes a request whose KV is kept, and the replica that keeps
    it. `tokens` have been fetched.
    """

    def __init__(
        self,
        clock: Clock,
        bytes_s: Callable[[float], float],
        kv_bytes: Sequence[int],
        hand_over: Callable[[Request, int], None],
    ) -> None:
        self._clock, self._bytes_s, self._kv_bytes, self.hand_over = clock, bytes_s, kv_bytes, hand_over
        self._out = [Link() for _ in kv_bytes]
        self._in = [Link() for _ in kv_bytes]
        self._kept: dict[int, Kept] = {}  # by request
        self._ids, self._sources = array("q"), array("q")
        self._begin_s, self._end_s = array("d"), array("d")
        self.tokens = 0

    def keep(self, request: Request, source: KvSending, tokens: int) -> None:
        """A prefill replica has so many tokens of a request's KV."""
        self._kept[request.id] = Kept(source, tokens, len(self._ids))
        self._ids.append(request.id)
        self._sources.append(source.replica_id)
        self._begin_s.append(nan)
        self._end_s.append(nan)

    def keeps(self, request: Request) -> bool:
        """Return whether a prefill replica keeps a request's KV."""
        return request.id in self._kept

    def claim(self, request: Request) -> Kept:
        """Return where a request's KV is kept, which the caller fetches."""
        return self._kept.pop(request.id)

    def drop(self, request: Request) -> None:
        """A request that was handed over will not be served, so that nothing will fetch its KV."""
        self._kept.pop(request.id).source.let_go(request)

    def fetch(self, request: Request, kept: Kept, target: int, now_s: float) -> float:
        """Copy a request's KV, as soon as both links are free; return when it is there, and may go where it was."""
        source, tokens, place = kept.source, kept.tokens, kept.place
        kv_bytes = max(self._kv_bytes[source.replica_id], self._kv_bytes[target])
        links = self._out[source.replica_id], self._in[target]
        end_s = together(links, now_s, self._bytes_s(tokens * kv_bytes))
        self.tokens += tokens
        self._begin_s[place], self._end_s[place] = now_s, end_s
        self._clock.call(end_s, STORE, request.id, partial(source.let_go, request))
        return end_s

    def slow_down(self, replicas: Iterable[int], factor: float) -> None:
        """Copies out of and into these replicas take `factor` times as long from now on."""
        for id in replicas:
            self._out[id].slowdown = self._in[id].slowdown = factor

    def log(self) -> Handovers:
        """Return what has been handed over, in order of time."""
        columns = self._ids, self._sources, self._begin_s, self._end_s
        return Handovers(*(np.array(each) for each in columns))

    def busy_s(self, until_s: float) -> list[tuple[float, float]]:
        """Return how long the links out of and into each replica had been busy by then."""
        return [
            (out.busy_until(until_s), into.busy_until(until_s))
            for out, into in zip(self._out, self._in, strict=True)
        ]


class KvSending(Part):
    """Hands requests over with their first token, and keeps their KV. Source: DistServe (OSDI'24) §4.3: it is pulled.

    The request gives back its seat and its adapter at once. Its KV takes the slots that it had until the copy has
    ended: a decode pool without memory fills the prefill pool, too.
    """

    @staticmethod
    def requires(scenario: Scenario) -> Iterator[str]:
        cluster, policies = scenario.cluster, scenario.policies
        if not cluster.prefill_replicas:
            return
        apart = "cluster.prefill_replicas"
        if policies.decode_router is None:
            yield f"{apart} needs a router for the replicas that decode"
        if not isinstance(policies.placement, ReplicateAll):
            yield f"{apart} needs placement=replicate_all: either pool serves all adapters"
        if scenario.replica.prefix_caching:
            yield f"{apart} needs replica.prefix_caching=false: KV of earlier requests is looked for in neither pool"
        if scenario.replica.reserve == "padded":
            yield "replica.reserve is padded, must be full, peak or paged where prefill and decode are apart"
        if policies.merges and not policies.scheduler().pauses:
            yield f"{apart} needs a scheduler that pauses the requests of other adapters where it merges one"
        if cluster.engines_per_gpu > 1:
            yield f"{apart} needs cluster.engines_per_gpu=1"
        if cluster.may_fail:
            yield f"{apart} needs a cluster without cluster.failures"
        if scenario.clients.react:
            yield f"{apart} needs clients that only send requests: leave clients.* as it is"
        for slot, policy in ("migration", policies.migration), ("autoscaler", scenario.scaling.autoscaler):
            if policy.period_s is not None:
                yield f"{apart} needs {slot}={'stay' if slot == 'migration' else 'fixed'}"

    def __init__(self, replica: Replica, kept: Pausable, transfers: KvTransfers) -> None:
        self._replica, self._table, self._reservation, self._transfers = (
            replica,
            replica.table,
            kept,
            transfers,
        )
        self.replica_id = replica.id
        self._done: list[Request] = []  # at this boundary
        self.kept: dict[int, Request] = {}  # whose KV is here, by id

    def hold_back(self, request: Request, now_s: float) -> bool:
        self._done.append(request)
        return True

    def at_boundary(self, now_s: float) -> None:
        if not self._done:
            return
        table, done = self._table, self._done
        self._done = []
        for request in done:
            tokens = request.prompt_tokens + request.padding_tokens
            self._reservation.pause(request, table.batch.step)
            if request.adapter is not None:
                table.kv.adapters.unpin(request.adapter)
            for on_release in self._replica.hooks.on_release:
                on_release(request, now_s)
            self.kept[request.id] = request
            self._transfers.keep(request, self, tokens)
            request.token_s, request.cached_tokens = now_s, 0
        table.sweep(now_s)
        for request in done:
            self._transfers.hand_over(request, self.replica_id)

    def awaits(self) -> bool:
        return bool(self.kept)

    def let_go(self, request: Request) -> None:
        """The copy of a request's KV has ended."""
        del self.kept[request.id]
        self._reservation.remove(request, self._table.batch.step)
        if self._replica.idle and self._table.queue.count:
            self._replica.wake()


class KvReceiving(Deferring):
    """Requests that another replica has prefilled, and whose KV is fetched once they are admitted (RECEIVING).

    They join the running batch without a pass when KV and weights are there. Of these, weights may stall the replica,
    as the loader has it; KV never does.
    """

    def __init__(self, replica: Replica, loader: OverlappedLoader, transfers: KvTransfers) -> None:
        super().__init__(replica, RequestStatus.RECEIVING)
        self._loader, self._transfers = loader, transfers
        self._kv_s: dict[int, float] = {}  # when it is there, by request; inf: a wait for weights is counted

    def before_admit(self, requests: Sequence[Request]) -> Sequence[Request]:
        transfers = self._transfers
        prefilled = [request for request in requests if transfers.keeps(request)]
        if not prefilled:
            return requests
        self._admit(prefilled)
        return [request for request in requests if request not in prefilled]

    def _admit(self, requests: Collection[Request]) -> None:
        replica, table, loader = self._replica, self._table, self._loader
        now_s, step = replica.clock.now, table.batch.step
        self.leave_out({request.id for request in requests})
        kept = [self._transfers.claim(request) for request in requests]
        for request in requests:
            table.dequeue(request)
        blocked_s = {request.id: request.blocked_s for request in requests}
        plan = loader.admit(tuple(requests), step, now_s)
        loader.defer(requests, step, now_s)
        if plan.weights_s > now_s:
            replica.stall(plan.weights_s)
        for request, where in zip(requests, kept, strict=True):
            kv_s = self._transfers.fetch(request, where, replica.id, plan.kv_s)
            counted = request.blocked_s != blocked_s[request.id]  # for weights that the replica waits for
            self._kv_s[request.id] = inf if counted else kv_s
            self.add(request, now_s, max(kv_s, loader.ready_s(request)))

    def on_queue(self, request: Request, waits: bool) -> None:
        if not waits and self._transfers.keeps(request):  # the scheduler aborts it
            self._transfers.drop(request)

    def take_ready(self, now_s: float) -> tuple[Request, ...]:
        """Let the requests decode whose KV and weights are there now."""
        while self.next_ready_s <= now_s and (request := self.next_ready(now_s)) is not None:
            self._waited(request, now_s)
            self._table.rejoin(request)
            self._replica.record_running()
        return ()

    def stop(self, request: Request, now_s: float) -> bool:
        self._waited(request, now_s)
        return True

    def _waited(self, request: Request, now_s: float) -> None:
        """A request waits no longer; what it has waited for its weights alone was lost to adapters."""
        kv_s = self._kv_s.pop(request.id)
        waited_s = self.take(request, now_s)
        for_weights_s = min(now_s, self._loader.weights_s(request)) - kv_s
        request.blocked_s += min(max(for_weights_s, 0.0), waited_s)
