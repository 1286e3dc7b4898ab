"""Who is on a replica and where: in the queue, in a prefill, standing, or in the batch; and the ways between."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from math import inf

from simlora.core.request import Request
from simlora.engine.batch import Batch
from simlora.engine.handoff import Handoff
from simlora.engine.holdings import Holdings
from simlora.engine.incoming import Incoming
from simlora.engine.interfaces import QueueLoad
from simlora.engine.replica_config import ReplicaConfig
from simlora.engine.stalls import Stalls
from simlora.engine.standing import Standing
from simlora.engine.token_times import TokenTimes
from simlora.engine.waiting import WaitingQueue
from simlora.metrics.recorder import Recorder
from simlora.policies.loading.base import Loader


class Roster:
    """Moves one replica's requests, with the memory that they hold, and charges them what they wait for.

    A request waits, or is in the prefill under way, which the replica alone knows, or `standing`, or in the `batch`.
    A run of steps lasts as long as the batch stays as it is: who calls what takes members in or out ends it.
    """

    __slots__ = (
        "_came_s",
        "_id",
        "_on_leave",
        "_outputs",
        "_queued",
        "_recorder",
        "_swaps",
        "_tokens_at_once",
        "batch",
        "holdings",
        "incoming",
        "stalls",
        "standing",
        "token_times",
        "waiting",
    )

    def __init__(
        self,
        id: int,
        config: ReplicaConfig,
        holdings: Holdings,
        loader: Loader,
        merges: bool,
        outputs: Sequence[int],
        recorder: Recorder,
        on_leave: Callable[[int, Request], None],
        queued: QueueLoad | None,
    ) -> None:
        self._id = id
        self._swaps = config.preemption == "swap"
        self._tokens_at_once = config.max_num_batched_tokens
        self._outputs, self._recorder, self._on_leave = outputs, recorder, on_leave
        self._queued = queued  # what routers are told of the queue
        self._came_s: dict[int, float] = {}  # since when those wait here that were elsewhere before
        self.waiting = WaitingQueue()
        self.standing = Standing()
        self.batch = Batch()
        self.holdings = holdings
        self.incoming = Incoming(holdings, config, loader, merges, recorder)
        self.stalls = Stalls(self.incoming)
        self.token_times = TokenTimes(recorder.token_gaps)

    def everyone(self, prefill: Iterable[Request]) -> list[Request]:
        """All that have not left, with those of the prefill under way."""
        standing = self.standing
        admitted = standing.prefilling | {request.id: request for request in prefill}
        others = (*standing.landing, *standing.late, *standing.paused.values())
        return [*self.waiting, *admitted.values(), *others, *self.batch]

    def adapters_in_use(self, prefill: Iterable[Request]) -> int:
        """Distinct adapters of those who run; who is paused or waits for weights holds one that no kernel sees."""
        standing = self.standing
        if standing.lands_s == inf and not standing.paused:
            return self.holdings.pool.pinned
        running = (*self.batch, *standing.prefilling.values(), *prefill)
        return len({request.adapter.id for request in running if request.adapter is not None})

    # The queue --------------------------------------------------------------------------

    def enqueue(self, request: Request) -> None:
        """A request waits."""
        self.waiting.add(request)
        if self._queued is not None:
            self._queued.add(self._id, request)

    def dequeue(self, request: Request) -> None:
        """A request waits no longer."""
        self.waiting.remove(request)
        if self._came_s:
            self._came_s.pop(request.id, None)
        if self._queued is not None:
            self._queued.take(self._id, request)

    def comes(self, request: Request, since_s: float, token_s: float | None) -> None:
        """A request that was elsewhere before, and had its last token there, will wait here since then."""
        self._came_s[request.id] = since_s
        if token_s is not None:
            self.token_times.waits(request.id, token_s)

    def waited_at(self, now_s: float) -> int:
        """Return how many of those who wait did so at a time in the past, since which nobody was admitted."""
        came_s = self._came_s
        return sum(came_s.get(request.id, request.arrival_s) <= now_s for request in self.waiting)

    def give_up(self, request: Request, reason: str, now_s: float) -> None:
        """A request that waits will never be served."""
        self.dequeue(request)
        self._recorder.abort(request, self._id, now_s, reason)
        self._on_leave(self._id, request)

    # Standing ---------------------------------------------------------------------------

    def set_apart(self, requests: list[Request], now_s: float) -> None:
        """Requests that were just admitted wait for their weights, and for KV from the host, with their memory."""
        self.incoming.wait_apart(requests, self.batch.step, now_s)
        for request in requests:
            self.standing.landing.add(request, now_s, self.incoming.ready_s(request))
        self.standing.find_next_landing()

    def land(self, now_s: float) -> tuple[Request, ...]:
        """Take those out whose weights have landed, as many as one prefill takes; return them."""
        landed: list[Request] = []
        tokens = 0
        for request in self.standing.landing.landed(now_s):
            tokens += request.prefill_tokens
            if landed and tokens > self._tokens_at_once:
                break
            self.stalls.waited(request, self.standing.landing.take(request.id, now_s), now_s)
            landed.append(request)
        self.standing.find_next_landing()
        return tuple(landed)

    def go_on(self, now_s: float) -> bool:
        """Let those decode whose weights have landed after their prefill; return whether there are any."""
        landed = self.standing.late.landed(now_s)
        for request in landed:
            request.blocked_s += self.standing.late.take(request.id, now_s)
            self.token_times.rejoins(request.id)
            self._join(request)
        return bool(landed)

    def pause(self, request: Request) -> None:
        """Take a member out of the batch with the KV that it has."""
        # One less than it has: that of its last step comes when it joins again.
        request.generated_tokens = self.batch.generated(request) - 1
        self._leave_batch(request)
        self.holdings.pause(request, self.batch.step)
        self.standing.paused[request.id] = request

    def resume(self, request: Request) -> None:
        """Put one who was paused back into the batch."""
        del self.standing.paused[request.id]
        self.holdings.resume(request, self.batch.step)
        self.token_times.rejoins(request.id)
        self._join(request)

    def stand_still(self, step: int) -> None:
        """The KV of those who are admitted and do not decode has not grown by the steps up to this one."""
        for request in self.standing.growing():
            self.holdings.stands_still(request, step)

    # Into the batch ---------------------------------------------------------------------

    def chunk(self, request: Request, tokens: int) -> bool:
        """Count a chunk of a prefill; return whether it is whole."""
        request.chunked_tokens += tokens
        if request.prefill_tokens:
            self.standing.prefilling[request.id] = request
            return False
        request.chunked_tokens = 0
        self.standing.prefilling.pop(request.id, None)
        return True

    def prefilled(self, request: Request, now_s: float, helped: bool) -> bool:
        """A request has its first token, or after it was put back its next; return whether that was its last.

        If not it decodes, unless CPU cores have `helped` it along and its weights are still on their way.
        """
        if request.first_token_s < 0.0:
            request.first_token_s = now_s
        else:
            self.token_times.resumed(request.id, now_s)
            request.host_tokens = 0
        self.holdings.share(request, self.batch.step, now_s)
        if self._outputs[request.id] == request.generated_tokens + 1:
            self._finish(request, now_s)
            return True
        if helped and self.incoming.lands_s(request) > now_s:
            self.standing.late.add(request, now_s, self.incoming.lands_s(request))
            self.standing.find_next_landing()
            self.token_times.waits(request.id, now_s)
        else:
            self._join(request)
            self.token_times.joined(request.id, now_s)
        return False

    def _join(self, request: Request) -> None:
        """A prefilled request begins to decode."""
        generated = request.generated_tokens + 1
        self.batch.join(request, generated, self._outputs[request.id] - generated)
        request.blocked_s -= self.stalls.batch_s

    def _leave_batch(self, request: Request) -> None:
        request.blocked_s += self.stalls.batch_s
        self.batch.take(request)
        self.token_times.preempted(request.id)

    # Back into the queue ----------------------------------------------------------------

    def preempt(self, request: Request, now_s: float) -> None:
        """An admitted request makes way for others."""
        request.preemptions += 1
        self._recorder.preemptions += 1
        self.put_back(request, now_s, self._swaps)

    def put_back(self, request: Request, now_s: float, swap: bool = False) -> None:
        """Put an admitted request back into the queue. Source: vLLM (SOSP'23) §4.5.

        Its KV is dropped, to be recomputed with its next prefill, or else swapped out to the host
        and back in before it goes on. A prefill that is not whole starts again.
        """
        shared_tokens = self.holdings.shared_tokens(request)
        spoke = self.stop(request, now_s)
        self._release(request, now_s)
        request.cached_tokens = 0
        self.enqueue(request)
        if spoke and swap:
            # All but what others can use, and its last token, whose KV does not exist before its next step.
            context = request.prompt_tokens + request.padding_tokens + request.generated_tokens
            request.host_tokens = context - 1 - shared_tokens
            self.holdings.swap_out(request.host_tokens, now_s)

    def stop(self, request: Request, now_s: float) -> bool:
        """Take an admitted request from wherever it is; return whether it was prefilled, and so has more tokens."""
        standing = self.standing
        if request.id in standing.landing.requests:
            self.stalls.waited(request, standing.landing.take(request.id, now_s), now_s)
            standing.find_next_landing()
            return False
        if request.id in standing.prefilling:
            del standing.prefilling[request.id]
            request.chunked_tokens = 0
            return False
        if request.id in standing.late.requests:
            request.blocked_s += standing.late.take(request.id, now_s)
            standing.find_next_landing()
            request.generated_tokens += 1
            return True
        if standing.paused.pop(request.id, None) is not None:
            request.generated_tokens += 1
            return True
        request.generated_tokens = self.batch.generated(request)
        self._leave_batch(request)
        return True

    # Leaving ----------------------------------------------------------------------------

    def depart(self, request: Request, chunked_tokens: int) -> Handoff:
        """A request leaves for which nothing is held any more, with so much of a prefill that was not whole."""
        if not request.generated_tokens:
            return Handoff(request, None, chunked_tokens)
        return Handoff(request, self.token_times.leaves(request.id), request.prefill_tokens)

    def finish_batch(self, now_s: float) -> None:
        """Those members leave whose last step this was."""
        for request in self.batch.finished():
            request.blocked_s += self.stalls.batch_s
            self._finish(request, now_s)
        self.holdings.sweep(now_s)

    def _finish(self, request: Request, now_s: float) -> None:
        """A request has had its last token."""
        if self.holdings.prefixes is not None:  # the last token's KV was never computed
            tokens = request.prompt_tokens + self._outputs[request.id] - 1
            self.holdings.prefixes.add(request, tokens, now_s)
        self._release(request, now_s)
        self._recorder.finish(request, self._id, now_s)
        self._on_leave(self._id, request)

    def _release(self, request: Request, now_s: float) -> None:
        """A request gives back what it holds."""
        self.holdings.release(request, self.batch.step, now_s)
        self.incoming.left(request, now_s)
