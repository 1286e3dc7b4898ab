"""One copy of the base model: its queue, its running batch, its HBM, its clock.

Five verbs carry the main path: admit, schedule, execute, advance, record.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence

from simpy import Event

from simlora.core.adapter import Adapter
from simlora.core.request import Request
from simlora.engine.admission import Admission, reservation
from simlora.engine.batch import Batch, prefill_work
from simlora.engine.clock import Clock, Kind
from simlora.engine.link import Link
from simlora.engine.run import DecodeRun
from simlora.engine.scenario import Scenario
from simlora.engine.token_times import TokenTimes
from simlora.engine.waiting import WaitingQueue
from simlora.latency.models import LatencyModels
from simlora.memory.pool import Pool
from simlora.metrics.recorder import Recorder
from simlora.policies.loading.base import Miss
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
        "_kv_bytes",
        "_latency",
        "_loader",
        "_on_leave",
        "_outputs",
        "_pool",
        "_prefill",
        "_recorder",
        "_reservation",
        "_run",
        "_scheduler",
        "_stalled_s",
        "_steps",
        "_token_times",
        "_wake",
        "admit_every",
        "busy_s",
        "config",
        "id",
        "iterations",
        "link",
        "most_running",
        "most_waiting",
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
        self.config = scenario.replica
        self.waiting = WaitingQueue()
        self.steps_since_prefill = 0
        self.admit_every = scenario.replica.admit_every
        self.link = Link()
        self.busy_s = 0.0
        self.iterations = 0
        self.most_running = 0
        self.most_waiting = 0
        self._clock = clock
        self._latency = latency
        self._outputs = outputs
        self._recorder = recorder
        self._on_leave = on_leave
        self._fast_forward = scenario.fast_forward
        self._scheduler = scenario.policies.scheduler()
        self._loader = scenario.policies.loader()
        self._pool = Pool(scenario.replica.kv_token_budget, scenario.policies.eviction().victims)
        self._reservation = reservation(scenario.replica)
        self._kv_bytes = scenario.model.kv_bytes_per_token // scenario.replica.tp
        self._batch = Batch()
        self._run: DecodeRun | None = None
        self._decision = Decision()
        self._prefill: tuple[Request, ...] = ()
        self._steps = 0  # at the coming boundary, this many steps of the run are done
        self._wake: Event = clock.event()
        self._idle = True
        self._token_times = TokenTimes(recorder.token_gaps)
        self._stalled_s = 0.0  # until when the GPU waits for KV on its way to the host

    # What policies see ------------------------------------------------------------------

    @property
    def now_s(self) -> float:
        """The time."""
        return self._clock.now

    @property
    def running(self) -> int:
        """Requests in the running batch."""
        return len(self._batch.members)

    def resident(self, adapter: Adapter) -> bool:
        """Whether an adapter is in HBM, or on its way."""
        return adapter in self._pool

    def upcoming(self) -> Iterable[Request]:
        """The waiting requests, in the order in which the scheduler would start them."""
        return self._scheduler.order(self)

    def trial(self) -> Admission:
        """Start a trial of who could be admitted now."""
        seats = self.config.max_batch_size - len(self._batch.members)
        return Admission(
            self._reservation, self._pool, self._batch.step, seats, self.config.max_prefill_tokens
        )

    # The life of a replica --------------------------------------------------------------

    def submit(self, request: Request) -> None:
        """A request arrives in the queue."""
        self.waiting.add(request)
        if self._idle:
            self._idle = False
            self._wake = self._clock.move(self._wake, self._clock.now, Kind.BOUNDARY, self.id)
        elif self._run is not None and not self._prefill:
            # The loader may want to fetch for an arrival that the decision does not care about.
            on_arrival = 0 if self._loader.ahead(self) else self._decision.on_arrival
            if on_arrival < self._steps - self._run.done:
                self._cut(self._run, on_arrival)

    def live(self) -> Generator[Event, None, None]:
        """The replica's process: one turn an iteration, or a run of them."""
        while True:
            if self._batch.members or self.waiting:
                self.schedule()
            if self._batch.members or self._prefill:
                self._wake = self._clock.moment(self.execute(), Kind.BOUNDARY, self.id)
            else:
                self._idle = True
                self._run = None
                self._wake = self._clock.event()
            since = self._clock.now
            yield self._wake
            if self._prefill or self._run is not None:
                self.busy_s += self._clock.now - since
            self.advance()
            self.record()

    def schedule(self) -> None:
        """Ask what to run next, and let go of those that are given up."""
        self._decision = decision = self._scheduler.schedule(self)
        self._prefill = decision.prefill
        for request, reason in decision.abort:
            self.waiting.remove(request)
            self._recorder.abort(request, self.id, self._clock.now, reason)
            self._on_leave(self.id)
        if not self._prefill and not self._batch.members and self.waiting:
            policy, head = type(self._scheduler).__name__, next(iter(self.waiting))
            raise AssertionError(
                f"{policy} leaves replica {self.id} idle beside request {head.id}, which could run"
            )

    def execute(self) -> float:
        """Start the decided iterations; return the time of the boundary at which they are over."""
        return self._execute_prefill() if self._prefill else self._execute_decode()

    def advance(self) -> None:
        """Move tokens, memory and the batch to the boundary that was reached."""
        if self._prefill:
            self._advance_prefill()
        elif self._run is not None:
            self._advance_decode(self._run)

    def record(self) -> None:
        """Tell the recorder what the replica looks like at this boundary."""
        running, waiting = len(self._batch.members), len(self.waiting)
        if running > self.most_running:
            self.most_running = running
        if waiting > self.most_waiting:
            self.most_waiting = waiting
        kv_tokens = self._reservation.used_tokens(self._batch.step)
        self._recorder.boundary(
            self.id, self._clock.now, running, waiting, kv_tokens, self._pool.adapter_tokens
        )

    # Prefill ----------------------------------------------------------------------------

    def _execute_prefill(self) -> float:
        self._run = None
        start = max(self._admit(self._prefill), self._stalled_s)
        work = prefill_work(self._prefill)
        tokens = tokens_sq = 0
        for request in self._prefill:
            length = request.prefill_tokens
            tokens += length
            tokens_sq += length * length
            if request.admitted_s < 0.0:
                request.admitted_s = start
        self.iterations += 1
        return (
            start
            + self._latency.iteration.prefill_s(tokens, tokens_sq)
            + self._latency.kernel.prefill_s(work)
        )

    def _admit(self, requests: Sequence[Request]) -> float:
        """Give requests from the queue their memory; return when all their weights and KV are there."""
        step, now = self._batch.step, self._clock.now
        missing = []
        ready = now
        for request in requests:
            self.waiting.remove(request)
            context = request.prompt_tokens + request.generated_tokens + 1
            to_come = request.max_output_tokens - request.generated_tokens - 1
            self._reservation.add(request.id, context, to_come, step)
            if request.host_tokens:
                ready = self.link.transfer(
                    now, self._latency.load.load_s(request.host_tokens * self._kv_bytes)
                )
            adapter = request.adapter
            if adapter is None:
                continue
            if adapter in self._pool:
                self._recorder.adapter_lookup(hit=True)
                self._pool.pin(adapter)
            else:
                missing.append(adapter)
        # Those that are there are pinned first, so that none of them makes room for another.
        kv_tokens = self._reservation.used_tokens(step)
        self._pool.make_room(kv_tokens)
        for adapter in missing:
            self._recorder.adapter_lookup(hit=self._bring(adapter, kv_tokens))
        for request in requests:
            if request.adapter is not None:
                landed = self._pool.ready_s(request.adapter)
                if landed > now:
                    ready = max(ready, landed)
                    if request.admitted_s < 0.0:
                        request.cold_start_s = landed - now
        return ready

    def _bring(self, adapter: Adapter, kv_tokens: int) -> bool:
        """Pin an adapter that was missing; return whether somebody else's load, or no load, was enough."""
        shared = adapter in self._pool
        free = not shared and self._loader.on_miss(adapter) is Miss.FREE
        if not shared:
            short = self._pool.make_room(kv_tokens, adapter.kv_tokens)
            assert short == 0, f"HBM is {short} token slots too small for adapter {adapter.name}"
            self._pool.insert(adapter, self._clock.now if free else self._fetch(adapter))
        self._pool.pin(adapter)
        return shared or free

    def _fetch(self, adapter: Adapter) -> float:
        self._recorder.adapter_load(adapter.size_bytes)
        return self.link.transfer(
            self._clock.now, self._latency.load.load_s(adapter.size_bytes // self.config.tp)
        )

    def _advance_prefill(self) -> None:
        now = self._clock.now
        finished = False
        for request in self._prefill:
            generated = request.generated_tokens + 1
            if request.first_token_s < 0.0:
                request.first_token_s = now
            else:
                self._token_times.resumed(request.id, now)
                request.host_tokens = 0
            to_come = self._outputs[request.id] - generated
            if to_come:
                self._batch.join(request, generated, to_come)
                self._token_times.joined(request.id, now)
            else:
                self._finish(request)
                finished = True
        if finished:
            self._pool.sweep()
        self._prefill = ()
        self.steps_since_prefill = 0

    # Decode -----------------------------------------------------------------------------

    def _execute_decode(self) -> float:
        batch, run = self._batch, self._run
        for adapter in self._loader.ahead(self):
            self._prefetch(adapter)
        if run is None:
            size = len(batch.members)
            work = batch.work(self._pool.pinned)
            base = self._latency.iteration.decode_s(
                size, batch.context_tokens
            ) + self._latency.kernel.decode_s(work)
            start = max(self._clock.now, self._stalled_s)
            self._run = run = DecodeRun(start, base, self._latency.iteration.decode_slope_s(size))
        steps = 1
        if self._fast_forward:
            free = self._pool.free_tokens(self._reservation.used_tokens(batch.step))
            room = self._reservation.steps_until_full(free, batch.step)
            steps = min(batch.steps_to_finish(), room, self._decision.steps)
            if self._decision.until_s < run.end_s(run.done + steps):
                steps = max(run.first_boundary(self._decision.until_s) - run.done, 1)
        self._steps = run.done + steps
        return run.end_s(self._steps)

    def _cut(self, run: DecodeRun, on_arrival: int) -> None:
        """End the run at the first boundary not before now, but not within its first `on_arrival` steps."""
        steps = max(run.first_boundary(self._clock.now), run.done + max(on_arrival, 1))
        if steps < self._steps:
            self._steps = steps
            self._wake = self._clock.move(self._wake, run.end_s(steps), Kind.BOUNDARY, self.id)

    def _advance_decode(self, run: DecodeRun) -> None:
        batch = self._batch
        steps = self._steps - run.done
        self._token_times.decoded(run, steps, len(batch.members), self._clock.now)
        run.done = self._steps
        batch.step += steps
        self.steps_since_prefill += steps
        self.iterations += steps
        self._recorder.token_steps += steps * len(batch.members)
        finished = batch.steps_to_finish() == 0
        if finished:
            self._run = None
            for request in batch.finished():
                self._finish(request)
            self._pool.sweep()
        self._fit()

    # Memory -----------------------------------------------------------------------------

    def _prefetch(self, adapter: Adapter) -> None:
        """Load an adapter in the background if it fits beside all that KV will grow into."""
        if adapter.kv_tokens <= self._pool.free_tokens(self._reservation.peak_tokens(self._batch.step)):
            self._pool.insert(adapter, self._fetch(adapter))

    def _fit(self) -> None:
        """Evict adapters, and then preempt the youngest requests, until grown KV fits."""
        while self._pool.make_room(self._reservation.used_tokens(self._batch.step)):
            self._preempt(max(self._batch, key=lambda request: (request.arrival_s, request.id)))

    def _preempt(self, request: Request) -> None:
        """Put a running request back into the queue. Source: vLLM (SOSP'23) §4.5.

        Its KV is dropped, to be recomputed with its next prefill, or else swapped out to the host
        and back in before it goes on.
        """
        assert len(self._batch) > 1, f"request {request.id} alone outgrows the pool"
        self._run = None
        request.generated_tokens = self._batch.generated(request)
        request.preemptions += 1
        self._recorder.preemptions += 1
        self._token_times.preempted(request.id)
        if self.config.preemption == "swap":
            # All but its last token, whose KV does not exist before its next step.
            request.host_tokens = self._batch.context(request) - 1
            kv_bytes = request.host_tokens * self._kv_bytes
            self._stalled_s = self.link.transfer(self._clock.now, self._latency.load.load_s(kv_bytes))
        self._batch.take(request)
        self._release(request)
        self.waiting.add(request)

    def _release(self, request: Request) -> None:
        self._reservation.remove(request.id, self._batch.step)
        if request.adapter is not None:
            self._pool.unpin(request.adapter)

    def _finish(self, request: Request) -> None:
        self._release(request)
        self._recorder.finish(request, self.id, self._clock.now)
        self._on_leave(self.id)
