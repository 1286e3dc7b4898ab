"""One copy of the base model: its queue, its running batch, its HBM, its clock.

Five verbs carry the main path: admit, schedule, execute, advance, record.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from math import inf

from simpy import Event

from simlora.core.adapter import Adapter
from simlora.core.request import Request
from simlora.engine.admission import Admission
from simlora.engine.batch import Batch
from simlora.engine.clock import BOUNDARY, Clock
from simlora.engine.holdings import Holdings
from simlora.engine.pace import Pace
from simlora.engine.run import DecodeRun
from simlora.engine.scenario import Scenario
from simlora.engine.sharing import SharedGpu
from simlora.engine.token_times import TokenTimes
from simlora.engine.waiting import WaitingQueue
from simlora.latency.models import LatencyModels
from simlora.metrics.recorder import Recorder
from simlora.policies.scheduling.base import Decision


class Replica:
    """Runs the clock of design §3; the scheduler and the loader see it as their view.

    `busy_s` is the time spent in iterations and in waiting for weights or KV.
    """

    __slots__ = (
        "_batch",
        "_clock",
        "_decision",
        "_fast_forward",
        "_idle",
        "_loader",
        "_on_leave",
        "_outputs",
        "_pace",
        "_passed_over",
        "_prefill",
        "_prefilling",
        "_recorder",
        "_renew",
        "_run",
        "_scheduler",
        "_since_s",
        "_steps",
        "_token_times",
        "_wake",
        "admit_every",
        "busy_s",
        "config",
        "holdings",
        "id",
        "iterations",
        "most_running",
        "most_waiting",
        "preempted",
        "steps_since_prefill",
        "waiting",
    )

    def __init__(
        self,
        id: int,
        clock: Clock,
        scenario: Scenario,
        latency: LatencyModels,
        outputs: Sequence[int],
        recorder: Recorder,
        on_leave: Callable[[int], None],
    ) -> None:
        self.id = id
        self.config = scenario.config_of(id)
        self.waiting = WaitingQueue()
        self.steps_since_prefill = 0
        self.admit_every = scenario.replica.admit_every
        self.preempted = False
        self.busy_s = 0.0
        self.iterations = self.most_running = self.most_waiting = 0
        self._clock = clock
        self._outputs = outputs
        self._recorder = recorder
        self._on_leave = on_leave
        self._fast_forward = scenario.fast_forward
        self._scheduler = scenario.policies.scheduler()
        self._loader = scenario.policies.loader()
        self.holdings = Holdings(scenario, self.config, self._loader, latency, recorder)
        self._batch = Batch()
        self._run: DecodeRun | None = None
        self._decision = Decision()
        self._passed_over = 0
        self._prefill: tuple[Request, ...] = ()
        self._prefilling: dict[int, Request] = {}  # admitted, and only in part prefilled
        self._steps = 0  # at the coming boundary, this many steps of the run are done
        self._wake: Event = clock.event()
        self._idle = True
        self._token_times = TokenTimes(recorder.token_gaps)
        self._pace = Pace(id, latency, self.holdings.pool, scenario.replica.tp)
        self._since_s = 0.0  # when the iterations that are under way began
        self._renew = False  # the run's times are no longer right

    def share(self, gpu: SharedGpu) -> None:
        """This replica runs on a GPU with others."""
        self._pace.gpu = gpu
        gpu.engines.append(self)

    # What policies see ------------------------------------------------------------------

    @property
    def now_s(self) -> float:
        """The time."""
        return self._clock.now

    @property
    def running(self) -> int:
        """Requests in the running batch."""
        return len(self._batch.members)

    @property
    def prefilling(self) -> Sequence[Request]:
        """Admitted requests of which a part is prefilled, in the order of their admission."""
        return tuple(self._prefilling.values())

    @property
    def adapters(self) -> int:
        """Distinct adapters of the running batch."""
        return self.holdings.pool.pinned

    @property
    def merged(self) -> Adapter | None:
        """The adapter that is merged into the weights."""
        return self._pace.merged

    def in_use(self, adapter: Adapter) -> bool:
        """Whether a running request uses the adapter."""
        return self.holdings.pool.is_pinned(adapter)

    def resident(self, adapter: Adapter) -> bool:
        """Whether an adapter is in HBM, or on its way."""
        return adapter in self.holdings.pool

    def upcoming(self) -> Iterable[Request]:
        """The waiting requests, in the order in which the scheduler would start them."""
        return self._scheduler.order(self)

    def trial(self) -> Admission:
        """Start a trial of who could be admitted now."""
        seats = self.config.max_batch_size - len(self._batch.members) - len(self._prefilling)
        holdings = self.holdings
        return Admission(
            holdings.reservation, holdings.pool, seats, self.config, self._batch, holdings.prefixes
        )

    # The life of a replica --------------------------------------------------------------

    def submit(self, request: Request) -> None:
        """A request arrives in the queue."""
        self.waiting.add(request)
        if self._idle:
            self._idle = False
            self._wake = self._clock.move(self._wake, self._clock.now, BOUNDARY, self.id)
        elif self._run is not None and not self._prefill:
            # The loader may want to fetch for an arrival that the decision does not care about.
            wanted, pool = self._loader.ahead(self), self.holdings.pool
            fetches = bool(wanted) and any(adapter not in pool for adapter in wanted)
            on_arrival = 0 if fetches else self._decision.on_arrival
            if on_arrival < self._steps - self._run.done:
                self._cut(self._run, on_arrival)

    def live(self) -> Generator[Event, None, None]:
        """The replica's process: one turn an iteration, or a run of them."""
        clock, batch, gpu = self._clock, self._batch, self._pace.gpu
        while True:
            if batch.members or self.waiting or self._prefilling:
                self.schedule()
            busy = bool(batch.members or self._prefill)
            if gpu is not None:
                gpu.set_busy(self.id, busy)
            if busy:
                self._wake = clock.moment(self.execute(), BOUNDARY, self.id)
                self._since_s = clock.now
                yield self._wake
                self.busy_s += clock.now - self._since_s
                self.advance()
            else:
                self._idle = True
                self._run = None
                self._wake = clock.event()
                yield self._wake
            self.record(clock.now, len(self.waiting))

    def schedule(self) -> None:
        """Ask what to run next, and let go of those that are given up."""
        self._decision = decision = self._scheduler.schedule(self)
        if decision.passed_over != self._passed_over:
            self._passed_over = decision.passed_over
            self._run = None  # its steps take another time
        self._prefill = decision.prefill
        for request, reason in decision.abort:
            self.waiting.remove(request)
            self._recorder.abort(request, self.id, self._clock.now, reason)
            self._on_leave(self.id)
        if not self._prefill and not self._batch.members and (self.waiting or self._prefilling):
            policy = type(self._scheduler).__name__
            head = next(iter(self.waiting if self.waiting else self.prefilling))
            raise AssertionError(
                f"{policy} leaves replica {self.id} idle beside request {head.id}, which could run"
            )

    def execute(self) -> float:
        """Start the decided iterations; return the time of the boundary at which they are over."""
        return self._execute_prefill() if self._prefill else self._execute_decode()

    def advance(self) -> None:
        """Move tokens, memory and the batch to the boundary that was reached."""
        run = self._run
        self.preempted = False
        if run is None:
            if self._prefill:
                self._advance_prefill()
            return
        self._advance_decode(run, self._clock.now)
        for request in self._prefilling.values():
            # Theirs is KV that has not grown by the steps just taken.
            self.holdings.hold_again(request, self._batch.step)
        if self._prefill:
            self._advance_prefill()
        if self.holdings.make_room(self._batch.step):
            self._fit()

    def record(self, now_s: float, waiting: int) -> None:
        """Tell the recorder what the replica looks like at the boundary of that moment."""
        running = len(self._batch.members)
        if running > self.most_running:
            self.most_running = running
        if waiting > self.most_waiting:
            self.most_waiting = waiting
        holdings = self.holdings
        kv_tokens = holdings.kv_tokens(self._batch.step)
        adapter_tokens, region = holdings.pool.adapter_tokens, holdings.region
        self._recorder.boundary(self.id, now_s, running, waiting, kv_tokens, adapter_tokens, region)

    # Prefill ----------------------------------------------------------------------------

    def _execute_prefill(self) -> float:
        self._run = None
        decision, requests = self._decision, self._prefill
        start = max(self.admit(), self.holdings.stalled_s)
        if decision.unmerge or decision.merge is not None:
            switch_s = self._pace.switch_s(decision.unmerge, decision.merge)
            self._recorder.switch(switch_s)
            start += switch_s
        merged = self._pace.merged
        assert merged is None or all(request.adapter is merged for request in requests), (
            f"replica {self.id} has {merged} merged and prefills for another adapter"
        )
        for request in requests:
            if request.admitted_s < 0.0:
                request.admitted_s = start
        decoding = self._batch if decision.decode and self._batch.members else None
        pass_s = self._pace.prefill_s(requests, decision.chunks, decoding, decision.passed_over)
        if decoding is None:
            self.iterations += 1
        else:
            self._run, self._steps = DecodeRun(start, pass_s, 0.0), 1
        return start + pass_s

    def admit(self) -> float:
        """Give the prefill's requests their memory; return when all their weights and KV are there."""
        fresh = self._prefill
        if self._prefilling:
            fresh = tuple(request for request in fresh if request.id not in self._prefilling)
        for request in fresh:
            self.waiting.remove(request)
        if self.config.reserve == "padded" and fresh:
            longest = max(request.prompt_tokens for request in fresh)
            for request in fresh:
                request.padding_tokens = longest - request.prompt_tokens
        step = self._batch.step
        # They have their KV when the iteration ends, which may take the batch a step further.
        ends = step + 1 if self._decision.decode and self._batch.members else step
        return self.holdings.admit(fresh, step, ends, self._clock.now)

    def _advance_prefill(self) -> None:
        decision, now = self._decision, self._clock.now
        finished = False
        for index, request in enumerate(self._prefill):
            if decision.chunks and self._unfinished(request, decision.chunks[index]):
                continue
            generated = request.generated_tokens + 1
            if request.first_token_s < 0.0:
                request.first_token_s = now
            else:
                self._token_times.resumed(request.id, now)
                request.host_tokens = 0
            to_come = self._outputs[request.id] - generated
            self.holdings.share(request, self._batch.step)
            if to_come:
                self._batch.join(request, generated, to_come)
                self._token_times.joined(request.id, now)
            else:
                self._finish(request)
                finished = True
        if finished:
            self.holdings.sweep(self._clock.now)
        self._prefill = ()
        self._run = None
        self.steps_since_prefill = 0

    def _unfinished(self, request: Request, chunk: int) -> bool:
        """Count a chunk; whether more of the prefill is to come."""
        request.chunked_tokens += chunk
        if request.prefill_tokens:
            self._prefilling[request.id] = request
            return True
        request.chunked_tokens = 0
        self._prefilling.pop(request.id, None)
        return False

    # Decode -----------------------------------------------------------------------------

    def _execute_decode(self) -> float:
        batch, run = self._batch, self._run
        wanted = self._loader.ahead(self)
        if wanted:
            self.holdings.prefetch(wanted, batch.step, self._clock.now)
        if run is None:
            start = max(self._clock.now, self.holdings.stalled_s)
            self._run = run = self._pace.decode_run(start, batch, self._passed_over)
        steps = 1
        if self._fast_forward:
            holdings = self.holdings
            free = holdings.pool.free_tokens(holdings.running_tokens(batch.step))
            decision = self._decision
            steps = min(batch.steps_to_finish(), decision.steps)
            steps = min(holdings.reservation.steps_until_full(free, batch.step, steps), steps)
            if decision.until_s != inf and decision.until_s < run.end_s(run.done + steps):
                steps = max(run.first_boundary(decision.until_s) - run.done, 1)
        self._steps = run.done + steps
        return run.end_s(self._steps)

    def neighbours_changed(self, by: int) -> None:
        """Engine `by` on this GPU has begun, ended or changed its phase: the next step takes another time."""
        run = self._run
        if run is None or self._prefill:
            return
        self._renew = True
        steps = run.first_boundary(self._clock.now)
        # Of boundaries at this very moment, those of lower numbers are over.
        steps += by > self.id and run.end_s(steps) == self._clock.now
        self._cut(run, steps - run.done)

    def _cut(self, run: DecodeRun, on_arrival: int) -> None:
        """End the run at the first boundary not before now, but not within its first `on_arrival` steps."""
        steps = max(run.first_boundary(self._clock.now), run.done + max(on_arrival, 1))
        if steps < self._steps:
            self._steps = steps
            self._wake = self._clock.move(self._wake, run.end_s(steps), BOUNDARY, self.id)

    def settle(self) -> None:
        """The clock has stopped: count the steps that were over before, of a run that was not, and who still runs."""
        run = self._run
        if run is not None and not self._prefill:
            self._steps = run.first_boundary(self._clock.now) - 1
            if self._steps > run.done:
                ended_s = run.end_s(self._steps)
                self.busy_s += ended_s - self._since_s
                self._advance_decode(run, ended_s)
                self.holdings.make_room(self._batch.step)
                self.record(ended_s, sum(request.arrival_s <= ended_s for request in self.waiting))
        for request in (*self._batch, *self._prefilling.values()):
            self._recorder.left_running(request, self.id)

    def _advance_decode(self, run: DecodeRun, now_s: float) -> None:
        batch = self._batch
        steps = self._steps - run.done
        self._token_times.decoded(run, steps, len(batch.members), now_s)
        if steps > 1 and self.holdings.prefixes is not None:
            self.holdings.make_room(batch.step + steps - 1)  # what had to go before somebody may finish now
        run.done = self._steps
        batch.step += steps
        self.steps_since_prefill += steps
        self.iterations += steps
        self._recorder.token_steps += steps * len(batch.members)
        if self._renew:
            self._run, self._renew = None, False
        if batch.steps_to_finish() == 0:
            self._run = None
            for request in batch.finished():
                self._finish(request)
            self.holdings.sweep(self._clock.now)

    # Leaving ----------------------------------------------------------------------------

    def _fit(self) -> None:
        """Preempt those admitted last until grown KV fits; no adapter is left to evict."""
        holdings = self.holdings
        while holdings.make_room(self._batch.step):
            held = self._prefilling or self._batch.members
            request = held[next(reversed(held))]
            alone = len(self._prefilling) + len(self._batch.members) == 1
            assert not alone, f"request {request.id} alone outgrows the pool"
            self._preempt(request)
            self.preempted = True

    def _preempt(self, request: Request) -> None:
        """Put a running request back into the queue. Source: vLLM (SOSP'23) §4.5.

        Its KV is dropped, to be recomputed with its next prefill, or else swapped out to the host
        and back in before it goes on. A prefill that is not whole starts again.
        """
        request.preemptions += 1
        self._recorder.preemptions += 1
        shared_tokens = self.holdings.shared_tokens(request)
        self.holdings.release(request, self._batch.step, self._clock.now)
        request.cached_tokens = 0
        self.waiting.add(request)
        if request.id in self._prefilling:
            del self._prefilling[request.id]
            request.chunked_tokens = 0
            return
        self._run = None
        request.generated_tokens = self._batch.generated(request)
        self._token_times.preempted(request.id)
        if self.config.preemption == "swap":
            # All but what others can use, and its last token, whose KV does not exist before its next step.
            request.host_tokens = self._batch.context(request) - 1 - shared_tokens
            self.holdings.swap_out(request.host_tokens, self._clock.now)
        self._batch.take(request)

    def _finish(self, request: Request) -> None:
        if self.holdings.prefixes is not None:  # the last token's KV was never computed
            self.holdings.prefixes.add(request, request.prompt_tokens + self._outputs[request.id] - 1)
        self.holdings.release(request, self._batch.step, self._clock.now)
        self._recorder.finish(request, self.id, self._clock.now)
        self._on_leave(self.id)
