"""Prefill and decode on different replicas: one keeps a request's KV until the other has fetched it."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from math import inf, nan
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from simlora.core.request import Request
from simlora.engine.clock import STORE, Clock
from simlora.engine.parts.async_loading import Deferring, OverlappedLoader
from simlora.engine.replica.part import Part
from simlora.engine.replica.replica import Replica
from simlora.engine.replica.request_table import RequestStatus
from simlora.engine.scenario import Scenario
from simlora.memory.reservation import Pausable
from simlora.policies.placement.replicate_all import ReplicateAll


class Handovers(NamedTuple):
    """What was handed over `[requests]`, by which replica; when it was admitted, and its KV copied: NaN: not yet."""

    request: NDArray[np.int64]
    source: NDArray[np.int64]
    asked_s: NDArray[np.float64]
    begin_s: NDArray[np.float64]
    end_s: NDArray[np.float64]


class Transfer:
    """The KV of a request, in tokens: it is kept by a part, and maybe on the way to another replica.

    `place` is that in the log; `wanted` is whether it is still of use where it goes; `there` whether it has come there.
    One that `streams` goes in `layers`, and is not there before `least_s`, as the last layer is computed late.
    """

    __slots__ = (
        "begin_s",
        "layers",
        "least_s",
        "place",
        "request",
        "source",
        "streams",
        "target",
        "target_id",
        "there",
        "tokens",
        "wanted",
    )

    def __init__(self, request: Request, source: KvSending, tokens: int, place: int) -> None:
        self.request, self.source, self.tokens, self.place = request, source, tokens, place
        self.target: KvReceiving | None = None  # that has admitted the request
        self.target_id = -1
        self.wanted = self.there = self.streams = False
        self.layers = 1
        self.begin_s, self.least_s = inf, -inf


class KvTransfers:
    """The KV that prefill replicas keep, and the links over which decode replicas get it: each has one each way.

    Copies begin in the order in which they were asked for, but each as soon as both of its links are free. `bytes_s` is
    how long so many bytes take a link, `kv_bytes` `[replicas]` what the KV of a token takes on each GPU of a replica;
    each of these GPUs has a link. `hand_over` takes a request whose KV is kept, and the replica that keeps it; `choose`
    returns the decode replica of a request whose prompt is being computed. `tokens` have been copied.
    """

    def __init__(
        self,
        clock: Clock,
        bytes_s: Callable[[float], float],
        kv_bytes: Sequence[int],
        hand_over: Callable[[Request, int], None],
        choose: Callable[[Request, int], int],
    ) -> None:
        self._clock, self._bytes_s, self._kv_bytes = clock, bytes_s, kv_bytes
        self.hand_over, self._choose = hand_over, choose
        self._streams: dict[int, Transfer] = {}  # by request, whose prompt is being computed
        self._kept: dict[int, Transfer] = {}  # by request
        self._asked: list[Transfer] = []  # in order, of which no copy has begun
        self._out: dict[int, Transfer] = {}  # the copy under way, by the replica that it comes from
        self._into: dict[int, Transfer] = {}  # and by the one that it goes to
        self._slowdowns = [1.0 for _ in kv_bytes]
        self._busy_s = [
            0.0 for _ in kv_bytes
        ]  # of copies that have ended: of the one link that a replica uses
        self._ids, self._sources = array("q"), array("q")
        self._asked_s, self._begin_s, self._end_s = array("d"), array("d"), array("d")
        self.tokens = 0

    def stream(
        self, requests: Sequence[Request], source: KvSending, start_s: float, pass_s: float, layers: int
    ) -> None:
        """Send KV to decode replicas layer by layer, in the pass that begins then and completes these prompts.

        A layer goes when it is computed and the one before it has gone; the last one goes after the pass. On free links
        all have come when they would have come in one stretch that begins so late that no layer waits in it: here the
        copies are such a stretch, one prompt after the other.
        """
        end_s, layer_s = start_s + pass_s, 0.0
        for request in requests:
            tokens = request.prompt_tokens + request.padding_tokens
            kept = self._streams[request.id] = self._new(request, source, tokens)
            kept.target_id, kept.wanted = self._choose(request, source.replica_id), True
            kept.streams, kept.layers = True, layers
            layer_s += self._layer_s(kept)
            kept.least_s = end_s + layer_s
        begin_s = max(start_s + pass_s / layers, end_s - (layers - 1) * layer_s, self._clock.now)
        for request in requests:
            ask = partial(self._ask, self._streams[request.id])
            self._clock.call(begin_s, STORE, request.id, ask)

    def keep(self, request: Request, source: KvSending, tokens: int) -> None:
        """A prefill replica has so many tokens of a request's KV, all of its prompt's."""
        self._kept[request.id] = (
            self._streams.pop(request.id)
            if request.id in self._streams
            else self._new(request, source, tokens)
        )

    def _new(self, request: Request, source: KvSending, tokens: int) -> Transfer:
        kept = Transfer(request, source, tokens, len(self._ids))
        self._ids.append(request.id)
        self._sources.append(source.replica_id)
        for column in (self._asked_s, self._begin_s, self._end_s):
            column.append(nan)
        return kept

    def keeps(self, request: Request) -> bool:
        """Return whether a prefill replica keeps a request's KV for a replica that has not sent for it."""
        return request.id in self._kept

    def claim(self, request: Request) -> Transfer:
        """Return the KV of a request, which the caller fetches."""
        return self._kept.pop(request.id)

    def drop(self, request: Request) -> None:
        """A request that was handed over will not be served, so that its KV is of no use."""
        kept = self._kept.pop(request.id)
        kept.wanted = False
        if kept in self._asked:
            self._asked.remove(kept)
        if not kept.there:
            kept.source.let_go(request)

    def fetch(self, kept: Transfer, target: KvReceiving) -> None:
        """Copy the KV of a request to a replica as soon as the links are free; `target` is told when it is there.

        KV that was sent layer by layer comes anyway.
        """
        kept.target = target
        self._asked_s[kept.place] = self._clock.now
        if kept.there:
            self._clock.call(self._clock.now, STORE, kept.request.id, partial(self._arrive, kept))
        elif not kept.streams:
            kept.target_id, kept.wanted = target.replica_id, True
            self._ask(kept)

    def _ask(self, kept: Transfer) -> None:
        if kept.wanted:
            self._asked.append(kept)
            self._begin()

    def give_back(self, kept: Transfer) -> None:
        """A replica no longer waits for KV that is not there: it stays where it was computed, to be fetched again.

        What is sent layer by layer goes on.
        """
        kept.target = None
        if not kept.streams:
            kept.wanted = False
            if kept in self._asked:
                self._asked.remove(kept)
            kept = Transfer(kept.request, kept.source, kept.tokens, kept.place)
        self._kept[kept.request.id] = kept

    def _layer_s(self, kept: Transfer) -> float:
        """Return how long a layer takes the links, or all of what goes in one."""
        source, target = kept.source.replica_id, kept.target_id
        size_bytes = kept.tokens * max(self._kv_bytes[source], self._kv_bytes[target])
        slowdown = max(self._slowdowns[source], self._slowdowns[target])
        return slowdown * self._bytes_s(size_bytes / kept.layers)

    def _begin(self) -> None:
        """Begin the copies whose links are free, the first that was asked for first."""
        waiting: list[Transfer] = []
        for kept in self._asked:
            source, target = kept.source.replica_id, kept.target_id
            if source in self._out or target in self._into:
                waiting.append(kept)
                continue
            self._out[source] = self._into[target] = kept
            now_s = kept.begin_s = self._begin_s[kept.place] = self._clock.now
            end_s = now_s + kept.layers * self._layer_s(kept)
            self._clock.call(end_s, STORE, kept.request.id, partial(self._end, kept))
        self._asked = waiting

    def _end(self, kept: Transfer) -> None:
        """A copy has ended: its links are free."""
        source, target = kept.source.replica_id, kept.target_id
        del self._out[source], self._into[target]
        for id in (source, target):
            self._busy_s[id] += self._clock.now - kept.begin_s
        if kept.least_s > self._clock.now:
            self._clock.call(kept.least_s, STORE, kept.request.id, partial(self._come, kept))
        else:
            self._come(kept)
        self._begin()

    def _come(self, kept: Transfer) -> None:
        """KV is there: its slots are free where it was computed, if it was still wanted."""
        if kept.wanted:
            self.tokens += kept.tokens
            self._end_s[kept.place] = self._clock.now
            kept.there = True
            kept.source.let_go(kept.request)
            self._arrive(kept)

    def _arrive(self, kept: Transfer) -> None:
        """Tell the replica that waits for the KV, if one does."""
        target, kept.target = kept.target, None
        if target is not None:
            target.arrive(kept.request)

    def slow_down(self, replicas: Iterable[int], factor: float) -> None:
        """Copies out of and into these replicas that begin from now on take `factor` times as long."""
        for id in replicas:
            self._slowdowns[id] = factor

    def log(self) -> Handovers:
        """Return what has been handed over, in order of time."""
        columns = self._ids, self._sources, self._asked_s, self._begin_s, self._end_s
        return Handovers(*(np.array(each) for each in columns))

    def busy_s(self, until_s: float) -> list[float]:
        """Return how long the link of each replica has been busy; `until_s` is the time of the clock."""
        under_way = self._out | self._into
        return [
            busy_s + (until_s - under_way[id].begin_s if id in under_way else 0.0)
            for id, busy_s in enumerate(self._busy_s)
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
                table.kv.adapters.unpin(request.adapter, now_s)
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


class KvStreaming(Part):
    """Sends KV layer by layer while a prompt is computed; a decode replica is chosen when its last pass begins.

    Source: Splitwise (ISCA'24, arXiv 2311.18677), and vLLM's P2pNcclConnector, which saves each layer when it is
    computed, of a prompt in chunks with the last one. KV of a request that has not been admitted yet is kept beside the
    pool, as in the latter's buffer, here of any size. Differs: `outputs` tell of requests that are over with their
    first token, and these are not sent.
    """

    def __init__(
        self, sending: KvSending, transfers: KvTransfers, outputs: Sequence[int], layers: int
    ) -> None:
        self._sending, self._transfers, self._outputs, self._layers = sending, transfers, outputs, layers

    def assist(
        self, requests: Sequence[Request], tokens: Sequence[int], start_s: float, pass_s: float
    ) -> tuple[float, float]:
        complete = [
            request
            for place, request in enumerate(requests)
            if tokens[place] == request.prefill_tokens and self._outputs[request.id] > 1
        ]
        self._transfers.stream(complete, self._sending, start_s, pass_s, self._layers)
        return start_s, pass_s


class KvReceiving(Deferring):
    """Requests that another replica has prefilled, and whose KV is fetched once they are admitted (RECEIVING).

    They join the running batch without a pass when KV and weights are there. Of these, weights may stall the replica,
    as the loader has it; KV never does.
    """

    def __init__(self, replica: Replica, loader: OverlappedLoader, transfers: KvTransfers) -> None:
        super().__init__(replica, RequestStatus.RECEIVING)
        self._loader, self._transfers, self.replica_id = loader, transfers, replica.id
        self._coming_kv: dict[int, Transfer] = {}  # by request
        self._arrived_s: dict[int, float] = {}  # when its KV was there, by request
        self._charged: set[int] = set()  # requests whose wait for weights the loader has counted

    def before_admit(self, requests: Sequence[Request]) -> Sequence[Request]:
        keeps = self._transfers.keeps
        prefilled = {request.id: request for request in requests if keeps(request)}
        if not prefilled:
            return requests
        self._admit(prefilled)
        return [request for request in requests if request.id not in prefilled]

    def _admit(self, requests: Mapping[int, Request]) -> None:
        replica, table, loader = self._replica, self._table, self._loader
        now_s, step, those = replica.clock.now, table.batch.step, tuple(requests.values())
        self.leave_out(requests.keys())
        kept = [self._transfers.claim(request) for request in those]
        for request in those:
            table.dequeue(request)
        blocked_s = {request.id: request.blocked_s for request in those}
        plan = loader.admit(those, step, now_s)
        loader.defer(those, step, now_s)
        if plan.weights_s > now_s:
            replica.stall(plan.weights_s)
        for request, transfer in zip(those, kept, strict=True):
            if request.blocked_s != blocked_s[request.id]:
                self._charged.add(request.id)
            self._coming_kv[request.id] = transfer
            self.add(request, now_s, inf)
            self._transfers.fetch(transfer, self)

    def arrive(self, request: Request) -> None:
        """The KV of a request is there now."""
        now_s = self._replica.clock.now
        del self._coming_kv[request.id]
        self._arrived_s[request.id] = now_s
        self.take(request, now_s)
        self.add(request, now_s, max(now_s, self._loader.ready_s(request)))
        if self._replica.idle:
            self._replica.wake()
        else:
            self._replica.interrupt()

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
        """A request is taken away; if its KV is not there yet, it is fetched again when it comes back."""
        coming = self._coming_kv.pop(request.id, None)
        if coming is None:
            self._waited(request, now_s)
            return True
        self._charged.discard(request.id)
        self.take(request, now_s)
        self._transfers.give_back(coming)
        return False

    def _waited(self, request: Request, now_s: float) -> None:
        """A request waits no longer; what it has waited for its weights alone was lost to adapters."""
        since_s = self._arrived_s.pop(request.id)
        waited_s = self.take(request, now_s)
        if request.id in self._charged:
            self._charged.discard(request.id)
        else:
            for_weights_s = min(now_s, self._loader.weights_s(request)) - since_s
            request.blocked_s += min(max(for_weights_s, 0.0), waited_s)
