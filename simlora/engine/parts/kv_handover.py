"""Prefill and decode on different replicas: one keeps a request's KV until the other has it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from math import inf

from simlora.core.request import Request
from simlora.engine.clock import STORE
from simlora.engine.parts.async_loading import Deferring, OverlappedLoader
from simlora.engine.parts.kv_circles import CircularWaits
from simlora.engine.parts.kv_offload import PrefixCachingKV
from simlora.engine.parts.kv_transfer import KvTransfers, Transfer
from simlora.engine.replica.part import Part
from simlora.engine.replica.replica import Replica
from simlora.engine.replica.request_table import RequestStatus
from simlora.engine.scenario import Scenario
from simlora.memory.reservation import Pausable
from simlora.policies.eviction.swapper import Swapper
from simlora.policies.placement.replicate_all import ReplicateAll


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
        if isinstance(policies.eviction(), Swapper):
            yield f"{apart} needs an eviction that moves no KV to the host, such as eviction=lru"
        if scenario.replica.reserve == "padded":
            yield "replica.reserve is padded, must be full, peak or paged where prefill and decode are apart"
        if policies.merges and not policies.scheduler().pauses:
            yield f"{apart} needs a scheduler that pauses the requests of other adapters where it merges one"
        if cluster.engines_per_gpu > 1:
            yield f"{apart} needs cluster.engines_per_gpu=1"
        if cluster.may_fail:
            yield f"{apart} needs a cluster without cluster.failures"
        if cluster.mixes:
            mixed = "cluster.mixed_pool_tokens"
            if scenario.replica.reserve != "paged":
                yield f"{mixed} needs replica.reserve=paged: a prompt reserves nothing for an answer that may stay"
            if policies.assists:
                yield f"{mixed} needs a loader without CPU cores that assist, such as loader=asynchronous"
        if scenario.clients.patience_s is not None:
            yield f"{apart} needs clients.patience_s=null: a request whose prefill is under way cannot be taken back"
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
        if self._transfers.stays(request, self.replica_id):
            return False
        self._done.append(request)
        return True

    def at_boundary(self, now_s: float) -> None:
        if not self._done:
            return
        table, done = self._table, self._done
        self._done = []
        for request in done:
            self._reservation.pause(request, table.batch.step)
            if request.adapter is not None:
                table.kv.adapters.unpin(request.adapter, now_s)
            for on_release in self._replica.hooks.on_release:
                on_release(request, now_s)
            self.kept[request.id] = request
            self._transfers.keep(request, self)
            request.token_s, request.cached_tokens = now_s, 0
        table.sweep(now_s)
        for request in done:
            self._transfers.hand_over(request, self.replica_id)

    def awaits(self) -> bool:
        return bool(self.kept or self._done)

    @property
    def stands_still(self) -> bool:
        """Whether nothing runs here, and nothing will before KV that is kept here is fetched."""
        table, keeps = self._table, self._transfers.keeps
        held = table.held_count - len(table.held[RequestStatus.PAUSED])
        waits = self._replica.idle and table.queue.count and not held
        return bool(waits) and all(map(keeps, self.kept.values()))

    def let_go(self, request: Request, by: int = -1) -> None:
        """The copy of a request's KV has ended, or replica `by` drops it at a boundary."""
        del self.kept[request.id]
        self._table.kv.free(request, self._replica.clock.now)
        if not self._table.queue.count:
            return
        if self._replica.idle:
            self._replica.wake()
        else:  # in a mixed pool a batch may decode beside KV that is kept: a request that was refused may fit now
            self._replica.interrupt(by)


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

    The copy of KV begins once its slots can be written. Requests join the running batch without a pass when KV and
    weights are there. Of these, weights may stall the replica, as the loader has it; KV never does.
    """

    def __init__(self, replica: Replica, loader: OverlappedLoader, transfers: KvTransfers) -> None:
        super().__init__(replica, RequestStatus.RECEIVING)
        self._loader, self._transfers, self.replica_id = loader, transfers, replica.id
        self._coming_kv: dict[int, Transfer] = {}  # by request
        self._arrived_s: dict[int, float] = {}  # when its KV was there, by request

    def before_admit(self, requests: Sequence[Request]) -> Sequence[Request]:
        keeps = self._transfers.keeps
        prefilled = {request.id: request for request in requests if keeps(request)}
        if not prefilled:
            return requests
        others = [request for request in requests if request.id not in prefilled]
        kv = self._table.kv
        if isinstance(kv, PrefixCachingKV):
            for request in others:  # before room is made for those that come
                kv.begin_with(request, self._replica.clock.now)
        self._admit(prefilled)
        return others

    def _admit(self, requests: Mapping[int, Request]) -> None:
        replica, table, loader = self._replica, self._table, self._loader
        now_s, step, those = replica.clock.now, table.batch.step, tuple(requests.values())
        self.leave_out(requests.keys())
        kept = [self._transfers.claim(request) for request in those]
        for request in those:
            table.dequeue(request)
        blocked_s = [request.blocked_s for request in those]
        plan = loader.admit(those, step, now_s)
        loader.defer(those, step, now_s)
        if plan.weights_s > now_s:
            replica.stall(plan.weights_s)
        for request, transfer, before_s in zip(those, kept, blocked_s, strict=True):
            request.blocked_s = before_s  # `_waited` counts: of a load, what the copy of KV does not hide
            self._coming_kv[request.id] = transfer
            self.add(request, now_s, inf)
            if loader.writable_s > now_s:
                fetch = partial(self._fetch, request, transfer)
                replica.clock.call(loader.writable_s, STORE, request.id, fetch)
            else:
                self._transfers.fetch(transfer, self)

    def writes(self, request: Request) -> bool:
        """Return whether the slots of a request that waits for its KV can be written, so that its copy may be there."""
        coming = self._coming_kv.get(request.id)
        return coming is None or coming.target is not None

    def _fetch(self, request: Request, transfer: Transfer) -> None:
        """The slots of a request can be written now, if it is still admitted."""
        if self._coming_kv.get(request.id) is transfer:
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
        if waits:
            self._transfers.waits(request, self)
        elif self._transfers.keeps(request):  # the scheduler aborts it, or its KV is given up
            self._transfers.drop(request, self.replica_id)

    def compute_anew(self, request: Request) -> None:
        """The KV of a request that waits here is given up where it is kept."""
        self._table.dequeue(request)
        request.generated_tokens += 1  # the token that came with that KV
        request.preemptions += 1
        self._replica.recorder.preemptions += 1
        self._table.enqueue(request)

    def take_ready(self, now_s: float) -> tuple[Request, ...]:
        """Let the requests decode whose KV and weights are there now; later ones can begin with that KV."""
        kv = self._table.kv
        while self.next_ready_s <= now_s and (request := self.next_ready(now_s)) is not None:
            self._waited(request, now_s)
            if isinstance(kv, PrefixCachingKV):
                kv.share(request, now_s)
            self._table.rejoin(request)
            self._replica.record_running()
        return ()

    def stop(self, request: Request, now_s: float) -> bool:
        """A request is taken away; if its KV is not there yet, it is fetched again when it comes back."""
        coming = self._coming_kv.pop(request.id, None)
        until_s = 0.0 if coming is None else self._transfers.give_back(coming)
        self._loader.give_up(request, self._table.batch.step, now_s, until_s)
        if coming is None:
            self._waited(request, now_s)
            return True
        self.take(request, now_s)
        return False

    def _waited(self, request: Request, now_s: float) -> None:
        """A request waits no longer; what it has waited for its weights alone was lost to adapters."""
        since_s = self._arrived_s.pop(request.id)
        waited_s = self.take(request, now_s)
        for_weights_s = min(now_s, self._loader.weights_s(request)) - since_s
        request.blocked_s += min(max(for_weights_s, 0.0), waited_s)


def sending(
    replica: Replica, transfers: KvTransfers, outputs: Sequence[int], layers: int, mixes: bool
) -> Iterator[Part]:
    """Yield the parts of a replica that prefills, after those that lengthen a pass; 0 layers: KV goes whole.

    `mixes`: those that decode may keep KV, too. What goes layer by layer waits for no room, so there are no circles.
    """
    kept = replica.kv.reservation
    assert isinstance(kept, Pausable), "KV is kept, and its slots are not known"
    part = KvSending(replica, kept, transfers)
    yield part
    if layers:
        yield KvStreaming(part, transfers, outputs, layers)
    elif mixes:
        yield CircularWaits(replica, transfers)
