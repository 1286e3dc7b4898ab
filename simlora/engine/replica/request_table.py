"""Which status each request of a replica has, and the ways from one to another."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from enum import IntEnum

from simlora.core.request import Request
from simlora.engine.handoff import Handoff
from simlora.engine.replica.decode_window import DecodeWindow
from simlora.engine.replica.kv_cache_manager import KVCacheManager
from simlora.engine.replica.latency_stats import LatencyStats
from simlora.engine.replica.part import NO_HOOKS
from simlora.engine.replica.request_queue import RequestQueue
from simlora.engine.replica.running_batch import distinct_adapters
from simlora.metrics.recorder import Recorder


class RequestStatus(IntEnum):
    """Status of an admitted request that is neither in the running batch nor in the prefill under way.

    LOADING_ADAPTER: its prefill waits for its weights, or for its KV from the host. PREFILLING: a part of its prompt is
    prefilled. ASSISTED: it was prefilled with the help of CPU cores, and waits for its weights. PAUSED: the scheduler
    took it out of the running batch, with its KV in HBM. RECEIVING: another replica prefilled it, and its KV is on the
    way.
    """

    LOADING_ADAPTER = 0
    PREFILLING = 1
    ASSISTED = 2
    PAUSED = 3
    RECEIVING = 4


PREFILLED = (RequestStatus.ASSISTED, RequestStatus.PAUSED, RequestStatus.RECEIVING)
"""They have a token that `generated_tokens` does not count."""


GROWING = (
    RequestStatus.LOADING_ADAPTER,
    RequestStatus.PREFILLING,
    RequestStatus.ASSISTED,
    RequestStatus.RECEIVING,
)
"""Their KV is charged as if they ran, corrected at each step for the growth that they do not have."""
PREEMPTED_FIRST = (
    RequestStatus.PAUSED,
    RequestStatus.LOADING_ADAPTER,
    RequestStatus.PREFILLING,
    RequestStatus.ASSISTED,
)


class RequestTable:
    """The one owner of where a replica's requests are, and of the decode window, which ends when the batch changes.

    A request waits in the `queue`, is in the `prefill` under way, is `held` with a status, or runs in the `batch`.
    `stops[status]` takes a request out of a status, and returns whether its prompt was complete.
    """

    __slots__ = (
        "_id",
        "_left",
        "_on_end",
        "_outputs",
        "_recorder",
        "_swap_out",
        "batch",
        "came_s",
        "held",
        "held_count",
        "hooks",
        "kv",
        "prefill",
        "queue",
        "stats",
        "stops",
        "window",
    )

    def __init__(
        self,
        id: int,
        kv: KVCacheManager,
        outputs: Sequence[int],
        recorder: Recorder,
        on_end: Callable[[int, Request], None],
        swap_out: Callable[[int, float], None] | None = None,
    ) -> None:
        self._id, self._outputs, self._recorder, self._on_end = id, outputs, recorder, on_end
        self._swap_out = (
            swap_out  # sends so many tokens of a preempted request to the host; None: they are recomputed
        )
        self.kv, self.batch = kv, kv.batch
        self.queue = RequestQueue()
        self.stats = LatencyStats(recorder.token_gaps)
        self.prefill: tuple[Request, ...] = ()
        self.window: DecodeWindow | None = None
        self.held: dict[RequestStatus, dict[int, Request]] = {status: {} for status in RequestStatus}
        self.held_count = 0
        self.stops: dict[RequestStatus, Callable[[Request, float], bool]] = {}
        self.came_s: dict[int, float] = {}  # since when requests wait here that were elsewhere before
        # From when to when requests waited that have left the queue since the last boundary.
        self._left: list[tuple[float, float]] = []
        self.hooks = NO_HOOKS

    # Where requests are -----------------------------------------------------------------------

    def requests(self) -> list[Request]:
        """Return all requests that have not left."""
        held = self.held
        prefill = held[RequestStatus.PREFILLING] | {request.id: request for request in self.prefill}
        others = (
            held[RequestStatus.LOADING_ADAPTER],
            held[RequestStatus.ASSISTED],
            held[RequestStatus.PAUSED],
            held[RequestStatus.RECEIVING],
        )
        aside = [request for requests in others for request in requests.values()]
        return [*self.queue, *prefill.values(), *aside, *self.batch]

    def growing(self) -> Iterator[Request]:
        """Yield the held requests whose KV is charged as if they ran."""
        for status in GROWING:
            yield from self.held[status].values()

    def last(self) -> Request | None:
        """Return the held request to be preempted first: paused last, or else admitted last.

        One whose KV is on the way only where no more than one runs: what was computed elsewhere would be copied again.
        """
        few = len(self.batch.members) < 2
        for status in (*PREEMPTED_FIRST, RequestStatus.RECEIVING) if few else PREEMPTED_FIRST:
            if held := self.held[status]:
                return held[next(reversed(held))]
        return None

    def count_adapters(self, prefill: Sequence[Request]) -> int:
        """Return the distinct adapters of the requests that run now: all pinned ones. HoldingTable leaves some out."""
        return len(self.kv.adapters.pins)

    def adapters_with(self, prefill: Sequence[Request]) -> int:
        """Return the distinct adapters of the running requests and of `prefill`, some of which may still wait."""
        cache = self.kv.adapters
        new = {r.adapter.id for r in prefill if r.adapter is not None and not cache.is_pinned(r.adapter)}
        return len(cache.pins) + len(new)

    # The queue --------------------------------------------------------------------------

    def enqueue(self, request: Request) -> None:
        """A request waits."""
        self.queue.add(request)
        for hook in self.hooks.on_queue:
            hook(request, True)

    def dequeue(self, request: Request) -> None:
        """A request waits no longer."""
        self.queue.remove(request)
        for hook in self.hooks.on_queue:
            hook(request, False)

    def abort(self, request: Request, reason: str, now_s: float) -> None:
        """A waiting request will never be served."""
        self.dequeue(request)
        self._recorder.abort(request, self._id, now_s, reason)
        self._on_end(self._id, request)

    def leaves_queue(self, request: Request, now_s: float, since_s: float) -> None:
        """A waiting request leaves between two boundaries; the replica was at one at `since_s`."""
        came_s = self.came_s.get(request.id, request.arrival_s)
        self._left = [(came, left) for came, left in self._left if left > since_s]
        self._left.append((came_s, now_s))

    def waited_at(self, now_s: float) -> int:
        """Return how many requests waited here at `now_s`, the last boundary before now; none was admitted since."""
        came_s = self.came_s
        waiting = sum(came_s.get(request.id, request.arrival_s) <= now_s for request in self.queue)
        return waiting + sum(came <= now_s < left for came, left in self._left)

    # Statuses ---------------------------------------------------------------------------

    def set_status(self, request: Request, status: RequestStatus) -> None:
        """An admitted request gets a status."""
        held = self.held[status]
        self.held_count += request.id not in held
        held[request.id] = request

    def clear_status(self, request: Request, status: RequestStatus) -> None:
        """An admitted request no longer has a status, if it had it."""
        self.held_count -= self.held[status].pop(request.id, None) is not None

    def end_window(self) -> None:
        """The running batch changes, or its pace: decode steps take other times from the next boundary on."""
        self.window = None

    # Into the batch ---------------------------------------------------------------------

    def prefilled(self, request: Request, now_s: float) -> bool:
        """A prompt is complete: count the request's first token, or its next one after a preemption.

        Return whether that was its last. If not it decodes, unless a part holds it back.
        """
        if request.first_token_s < 0.0:
            request.first_token_s = now_s
        else:
            self.stats.resumed(request, now_s)
            request.host_tokens = 0
        for hook in self.hooks.after_prefill:
            hook(request, now_s)
        to_come = self._outputs[request.id] - request.generated_tokens - 1
        if not to_come:
            self._finish(request, now_s)
            return True
        for hold_back in self.hooks.hold_back:
            if hold_back(request, now_s):
                return False
        self.stats.joins(request, now_s)
        self.batch.join(request, request.generated_tokens + 1)
        return False

    def rejoin(self, request: Request) -> None:
        """A request that was prefilled and held decodes from now on."""
        self.end_window()
        self.stats.rejoins(request)
        self.batch.join(request, request.generated_tokens + 1)

    def leave_batch(self, request: Request) -> None:
        """Take a request out of the running batch before it is finished."""
        self.end_window()
        self.batch.take(request)
        self.stats.leaves(request)

    # Back into the queue ----------------------------------------------------------------

    def preempt(self, request: Request, now_s: float) -> None:
        """An admitted request gives up its memory. Source: vLLM (SOSP'23) §4.5.

        Its KV is dropped, to be recomputed with its next prefill, or swapped out to the host and back in later.
        """
        request.preemptions += 1
        self._recorder.preemptions += 1
        shared_tokens = self.kv.shared_tokens(request)
        prefilled = self.requeue(request, now_s)
        if prefilled and self._swap_out is not None:
            # Not copied: KV shared with other requests, and the last token, whose KV its next step computes.
            context = request.prompt_tokens + request.padding_tokens + request.generated_tokens
            request.host_tokens = context - 1 - shared_tokens
            self._swap_out(request.host_tokens, now_s)

    def requeue(self, request: Request, now_s: float) -> bool:
        """Put an admitted request back into the queue without its KV; return whether it has been prefilled.

        A prefill that is not complete starts again.
        """
        prefilled = self.stop(request, now_s)
        self._release(request, now_s)
        request.cached_tokens = 0
        self.enqueue(request)
        return prefilled

    def stop(self, request: Request, now_s: float) -> bool:
        """Take an admitted request from where it is; return whether it has been prefilled, and so has tokens."""
        for status, held in self.held.items():
            if request.id in held:
                prefilled = self.stops[status](request, now_s)
                request.generated_tokens += prefilled
                return prefilled
        request.generated_tokens = self.batch.generated(request)
        self.leave_batch(request)
        return True

    # Leaving ----------------------------------------------------------------------------

    def depart(self, request: Request, chunked_tokens: int) -> Handoff:
        """Return the handoff of a request that holds no memory; it loses so many tokens of an incomplete prefill."""
        if not request.generated_tokens:
            return Handoff(request, None, chunked_tokens)
        return Handoff(request, request.token_s, request.prefill_tokens)

    def finish_batch(self, now_s: float) -> None:
        """The requests leave that the last step finished."""
        self.window = None
        stalled_s = self.stats.stalled_s
        for request in self.batch.finished():
            request.blocked_s += stalled_s
            self._finish(request, now_s)
        self.sweep(now_s)

    def sweep(self, now_s: float) -> None:
        """Requests have left: let the adapters go that the eviction policy does not keep."""
        self.kv.adapters.sweep()
        for hook in self.hooks.on_sweep:
            hook(now_s)

    def _finish(self, request: Request, now_s: float) -> None:
        """A request has its last token."""
        for hook in self.hooks.before_finish:
            hook(request, now_s)
        self.kv.release(request, now_s)
        for on_release in self.hooks.on_release:
            on_release(request, now_s)
        self._recorder.finish(request, self._id, now_s)
        self._on_end(self._id, request)

    def _release(self, request: Request, now_s: float) -> None:
        """A request gives back what it holds."""
        self.kv.release(request, now_s)
        for hook in self.hooks.on_release:
            hook(request, now_s)


class HoldingTable(RequestTable):
    """For a replica whose held requests pin adapters that the next iteration does not use: paused or loading ones."""

    __slots__ = ()

    def count_adapters(self, prefill: Sequence[Request]) -> int:
        prefilling = self.held[RequestStatus.PREFILLING]
        if self.held_count == len(prefilling):
            return super().count_adapters(prefill)
        return self._running_adapters(prefill)

    def adapters_with(self, prefill: Sequence[Request]) -> int:
        if self.held_count == len(self.held[RequestStatus.PREFILLING]):
            return super().adapters_with(prefill)
        return self._running_adapters(prefill)

    def _running_adapters(self, prefill: Sequence[Request]) -> int:
        return distinct_adapters((*self.batch, *self.held[RequestStatus.PREFILLING].values(), *prefill))
