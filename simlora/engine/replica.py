"""One copy of the base model: its queue, its running batch, its HBM, its clock.

Five verbs carry the main path: admit, schedule, execute, advance, record.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from math import inf, nextafter

from simpy import Event

from simlora.core.adapter import Adapter
from simlora.core.request import Request, arrival_order
from simlora.engine.clock import BOUNDARY, Clock
from simlora.engine.cores import Cores
from simlora.engine.handoff import Handoff
from simlora.engine.help import CpuHelp
from simlora.engine.holdings import Holdings
from simlora.engine.interfaces import AdapterSource, QueueLoad
from simlora.engine.pace import Pace
from simlora.engine.roster import Roster
from simlora.engine.run import DecodeRun
from simlora.engine.scenario import Scenario
from simlora.engine.sharing import SharedGpu
from simlora.engine.sight import Sight
from simlora.latency.models import LatencyModels
from simlora.metrics.recorder import Recorder
from simlora.metrics.tracing import Ran, ReplicaFailed
from simlora.policies.scheduling.base import SchedulerOutput


class Replica:
    """Runs the clock of docs/clock.md. The scheduler and the loader see what `sight` shows of it.

    `busy_s` is the time spent in iterations and in waiting for weights or KV.
    """

    __slots__ = (
        "_batch",
        "_before_s",
        "_brings",
        "_clock",
        "_decision",
        "_fast_forward",
        "_found",
        "_help",
        "_idle",
        "_loader",
        "_on_move",
        "_pace",
        "_prefill",
        "_recorder",
        "_renew",
        "_roster",
        "_run",
        "_scheduler",
        "_sends",
        "_since_s",
        "_skipped",
        "_standing",
        "_start_s",
        "_steps",
        "_tracing",
        "_wake",
        "busy_s",
        "config",
        "holdings",
        "id",
        "incoming",
        "most_running",
        "most_waiting",
        "sight",
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
        on_leave: Callable[[int, Request], None],
        on_move: Callable[[Handoff, int, int], None],
        cores: Cores | None = None,
        queued: QueueLoad | None = None,
        adapters: Sequence[Adapter] = (),
        stores: AdapterSource | None = None,
    ) -> None:
        self.id = id
        self.config = scenario.config_of(id)
        self.busy_s = 0.0
        self.most_running = self.most_waiting = 0
        self._clock = clock
        self._recorder, self._tracing = recorder, recorder.tracing
        self._on_move = on_move
        self._sends: dict[int, int] = {}  # where requests go at the end of this iteration
        self._brings: dict[int, Adapter] = {}  # to be sent for then
        self._fast_forward = scenario.fast_forward
        self._scheduler = scenario.policies.scheduler()
        self._loader = scenario.policies.loader()
        self.holdings = Holdings(scenario, self.config, adapters, latency, recorder, id, stores)
        self._roster = roster = Roster(
            id,
            self.config,
            self.holdings,
            self._loader,
            scenario.policies.merges,
            outputs,
            recorder,
            on_leave,
            queued,
        )
        self.waiting, self.incoming = roster.waiting, roster.incoming
        self._batch, self._standing = roster.batch, roster.standing
        self._run: DecodeRun | None = None
        self._decision = SchedulerOutput()
        self._skipped = 0
        self._prefill: tuple[Request, ...] = ()
        self._start_s = 0.0  # when the prefill begins that was admitted last
        self._steps = 0  # at the coming boundary, this many steps of the run are done
        self._wake: Event = clock.event()
        self._idle = True
        self._pace = Pace(id, latency, self.config.tp)
        self.sight = Sight(
            clock,
            self.config,
            self._scheduler,
            self.waiting,
            self._batch,
            self._standing,
            self.holdings,
            self._pace,
            len(scenario.trace.adapters),
            None if scenario.ttft_targets_s is None else scenario.ttft_targets_s.tolist(),
        )
        self._help: CpuHelp | None = None
        if cores is not None and latency.cpu_lora is not None:
            self._help = CpuHelp(cores, latency.cpu_lora, self.incoming.lands_s)
        self._since_s = 0.0  # when the iterations that are under way began
        self._before_s = 0.0  # the boundary before the one that was reached
        self._renew = False  # the run's times are no longer right
        self._found: tuple[int, int] | None = None  # who ran and who waited at the last boundary

    def share(self, gpu: SharedGpu) -> None:
        """This replica runs on a GPU with others."""
        self._pace.gpu = gpu
        gpu.engines.append(self)

    # What routers and migrations ask for ------------------------------------------------

    @property
    def iterations(self) -> int:
        """Iterations so far."""
        return self.sight.iterations

    def context_tokens(self, request: Request) -> int:
        """Prompt and the tokens so far of a request that has not left."""
        if request.id in self._batch.members:
            return self._batch.context(request) + self._ahead
        prefilled = request.id in self._standing.paused or request.id in self._standing.late.requests
        return request.prompt_tokens + request.padding_tokens + request.generated_tokens + prefilled

    @property
    def used_tokens(self) -> int:
        """Token slots of the pool that admitted requests' KV and adapters take: what cannot be evicted."""
        holdings, step, ahead = self.holdings, self._batch.step, self._ahead
        tokens = holdings.running_tokens(step + ahead) + holdings.pool.pinned_tokens
        if ahead:  # by which those who stand still have not grown
            ids = [request.id for request in self._standing.growing()]
            tokens -= sum(holdings.own_tokens(id, step + ahead) - holdings.own_tokens(id, step) for id in ids)
        return tokens

    @property
    def _ahead(self) -> int:
        """Decode steps that are over, and not counted yet."""
        run = self._decoding
        if run is None or self._idle:
            return 0
        return run.first_boundary(self._clock.now) - 1 - run.done

    @property
    def _decoding(self) -> DecodeRun | None:
        """The run of steps whose batch decodes, with no prefill beside it."""
        return None if self._prefill else self._run

    # The life of a replica --------------------------------------------------------------

    def submit(self, request: Request, by: int = -1) -> None:
        """A request arrives in the queue, at a boundary of replica `by` if that has sent it."""
        self._roster.enqueue(request)
        if self._idle:
            self._rouse()
        elif (run := self._decoding) is not None:
            # The loader may want to fetch for an arrival that the decision does not care about.
            wanted, pool = self._loader.ahead(self.sight), self.holdings.pool
            # Most arrivals find nothing wanted, and need no generator.
            fetches = bool(wanted) and any(adapter not in pool for adapter in wanted)
            on_arrival = 0 if fetches else self._decision.on_arrival
            if on_arrival < self._steps - run.done:
                self._cut(run, on_arrival, by)

    def live(self) -> Generator[Event, None, None]:
        """The replica's process: one turn an iteration, or a run of them."""
        clock, batch, gpu = self._clock, self._batch, self._pace.gpu
        while True:
            if self._sends:
                self._hand_over()
            if self._brings:
                self._fetch_brought()
            if self.holdings.swapping is not None:
                self.holdings.look(batch.step, self._before_s, clock.now)
            if batch.members or self.waiting or self._to_do:
                self.schedule()
            if self.holdings.swapping is not None:
                self.holdings.swapping.batch(clock.now, len(batch.members))
            busy = bool(batch.members or self._prefill)
            if gpu is not None:
                gpu.set_busy(self.id, busy)
            if busy:
                self._wake = clock.moment(self.execute(), BOUNDARY, self.id)
                self._since_s = clock.now
                self._sample(clock.now)
                yield self._wake
                self.busy_s += clock.now - self._since_s
                if self._tracing is not None:
                    self._trace(clock.now)
                self.advance()
            else:
                self._idle = True
                self._run = None
                self._before_s = clock.now
                look_s = self.holdings.look_s(batch.step, clock.now)
                wake_s = min(self._standing.lands_s, look_s if look_s > clock.now else inf)
                self._wake = clock.moment(wake_s, BOUNDARY, self.id) if wake_s != inf else clock.event()
                self._sample(clock.now)
                yield self._wake
                self._idle = False
            self.record(clock.now, len(self.waiting))

    def _rouse(self) -> None:
        """There is something to do for a replica that had nothing."""
        self._idle = False
        self._wake = self._clock.move(self._wake, self._clock.now, BOUNDARY, self.id)

    def schedule(self) -> None:
        """Ask what to run next, let go of those that are given up, rearrange the batch, and admit.

        Those who were admitted before, and whose weights have landed, go first without being asked about. If all of a
        prefill wait for their weights by themselves, the rest is left to others.
        """
        begins = self._land() if self._standing.lands_s != inf else ()
        while True:
            if begins:
                decision = SchedulerOutput(prefill=begins)
            elif self._batch.members or self.waiting or self._standing.prefilling or self._standing.paused:
                decision = self._scheduler.schedule(self.sight)
            else:
                decision = SchedulerOutput()
            self._decision = decision
            if decision.pause or decision.resume:
                self._rearrange(decision.pause, decision.resume)
            for name, value in decision.notes:
                self._recorder.note(self.id, self._clock.now, name, value)
            if decision.skipped != self._skipped:
                self._skipped = decision.skipped
                self._run = None  # its steps take another time
            self._prefill = decision.prefill
            for request, reason in decision.abort:
                self._roster.give_up(request, reason, self._clock.now)
            if not self._prefill:
                if self._batch.members:
                    break
                if decision.pause:
                    continue  # who is to run instead was tried as long as they still ran
                last = self._standing.last() if self._standing.paused else None
                if last is None or self._standing.lands_s != inf:
                    break
                # Of KV that the paused share with each other a trial does not know that it goes.
                self._preempt(last)
            self.admit(begins)
            if self._prefill:
                return
        if not self._batch.members and self._standing.lands_s == inf and (self.waiting or self._to_do):
            policy = type(self._scheduler).__name__
            head = next(iter((*self.waiting, *self._standing)))
            raise AssertionError(
                f"{policy} leaves replica {self.id} idle beside request {head.id}, which could run"
            )

    @property
    def _to_do(self) -> bool:
        """Whether anybody stands still."""
        standing = self._standing
        return bool(standing.prefilling or standing.paused) or standing.lands_s != inf

    def execute(self) -> float:
        """Start the decided iterations; return the time of the boundary at which they are over."""
        return self._execute_prefill() if self._prefill else self._execute_decode()

    def _trace(self, until_s: float) -> None:
        """Tell of the iterations that are over now."""
        assert self._tracing is not None, "nobody wants to hear of it"
        run, prefill = self._run, self._prefill
        begin_s = self._start_s if run is None else run.end_s(run.done)
        tokens = sum(self._decision.chunks or (request.prefill_tokens for request in prefill))
        batch, steps = (0, 0) if run is None else (len(self._batch.members), self._steps - run.done)
        ran = Ran(self.id, self._since_s, begin_s, until_s, len(prefill), tokens, batch, steps)
        self._tracing.add(ran)

    def advance(self) -> None:
        """Move tokens, memory and the batch to the boundary that was reached."""
        run = self._run
        self.sight.preempted = False
        self._before_s = self._since_s
        if run is None:
            if self._prefill:
                self._advance_prefill()
            return
        self._advance_decode(run, self._clock.now)
        if self._prefill:
            self._advance_prefill()
        if self.holdings.make_room(self._batch.step, self._clock.now):
            self._fit()
        self._wait_for_room()

    def _wait_for_room(self) -> None:
        """The next step writes to slots that may still be on their way to the host."""
        room_s = self.holdings.room_s(self._batch.step, self._clock.now)
        if room_s > self._clock.now:
            self.holdings.stalled_s, self._run = max(self.holdings.stalled_s, room_s), None

    def record(self, now_s: float, waiting: int) -> None:
        """Note who runs and who waits at the boundary of that moment."""
        running = len(self._batch.members)
        if running > self.most_running:
            self.most_running = running
        if waiting > self.most_waiting:
            self.most_waiting = waiting
        self._found = running, waiting

    def _sample(self, now_s: float) -> None:
        """Tell the recorder what the last boundary found, and what is held from now on, which was decided there."""
        if self._found is None:
            return
        running, waiting = self._found
        holdings = self.holdings
        kv_tokens, adapter_tokens = holdings.kv_tokens(self._batch.step), holdings.pool.adapter_tokens
        self._recorder.boundary(
            self.id, now_s, running, waiting, kv_tokens, adapter_tokens, holdings.region, holdings.prefixes
        )

    # Prefill ----------------------------------------------------------------------------

    def _execute_prefill(self) -> float:
        self._run = None
        decision, requests = self._decision, self._prefill
        start = max(self._start_s, self.holdings.stalled_s)
        if decision.unmerge or decision.merge is not None:
            start += self._switch(decision)
        decoding = self._batch if decision.decode and self._batch.members else None
        self._assert_merged((*requests, *(decoding or ())))
        adapters = self._roster.adapters_in_use(requests)
        alone_s = self._pace.prefill_s(requests, decision.chunks, decoding, decision.skipped, adapters)
        start, pass_s = (start, alone_s) if self._help is None else self._assist(self._help, start, alone_s)
        for request in requests:
            if request.admitted_s < 0.0:
                request.admitted_s = start
        self._start_s = start
        if decoding is None:
            self.sight.iterations += 1
        else:
            self._run, self._steps = DecodeRun(start, pass_s, 0.0), 1
        return start + pass_s

    def _assert_merged(self, requests: Iterable[Request]) -> None:
        merged = self._pace.merged
        assert merged is None or all(request.adapter is merged for request in requests), (
            f"replica {self.id} has {merged} merged and runs another adapter"
        )

    def _switch(self, decision: SchedulerOutput) -> float:
        """Take an adapter out of the weights, or put one in; return the seconds."""
        seconds = self._pace.switch_s(decision.unmerge, decision.merge)
        self._recorder.switch(self.id, self._clock.now, seconds, self._pace.merged)
        return seconds

    def admit(self, begins: tuple[Request, ...]) -> None:
        """Give the prefill's requests their memory, and set those apart that wait for their weights by themselves.

        Those that begin now have their memory already.
        """
        now, step = self._clock.now, self._batch.step
        self._start_s = now
        if begins:
            return
        fresh = self._prefill
        if self._standing.prefilling:
            fresh = tuple(request for request in fresh if request.id not in self._standing.prefilling)
        while self._standing.paused and not all(map(self.sight.trial().admit, fresh)):
            last = self._standing.last()
            assert last is not None, "somebody is paused"
            self._preempt(last)
        for request in fresh:
            self._roster.dequeue(request)
        if self.config.reserve == "padded" and fresh:
            longest = max(request.prompt_tokens for request in fresh)
            for request in fresh:
                request.padding_tokens = longest - request.prompt_tokens
        # They have their KV when the iteration ends, which may take the batch a step further.
        ends = step + 1 if self._decision.decode and self._batch.members else step
        kv_s, weights_s, apart = self.incoming.admit(fresh, step, ends, now)
        if apart:
            self._set_apart(apart)
        if weights_s > now:
            self._roster.stalls.stands_still(self._prefill, now, weights_s)
            if not self._prefill:  # what the batch uses is on its way
                self.holdings.stalled_s, self._run = max(self.holdings.stalled_s, weights_s), None
        self._start_s = max(kv_s, weights_s)

    def _assist(self, help: CpuHelp, start_s: float, gpu_s: float) -> tuple[float, float]:
        """Return when the prefill begins, and its seconds, where CPU cores stand in for weights on their way."""
        chunks = self._decision.chunks or [request.prefill_tokens for request in self._prefill]
        tokens = list(zip(self._prefill, chunks, strict=True))
        begin_s, pass_s, helped, alone = help.prefill(tokens, self._clock.now, start_s, gpu_s)
        stalls = self._roster.stalls
        for request in alone:
            stalls.waited(request, self.incoming.lands_s(request) - start_s, inf)
        stalls.assisted(self._prefill, helped, start_s, begin_s, pass_s - gpu_s)
        return begin_s, pass_s

    def _set_apart(self, requests: list[Request]) -> None:
        """They wait for what is on its way, by themselves; the others of the prefill go on."""
        self._roster.set_apart(requests, self._clock.now)
        gone = {request.id for request in requests}
        kept = [index for index, request in enumerate(self._prefill) if request.id not in gone]
        chunks = self._decision.chunks and tuple(self._decision.chunks[index] for index in kept)
        self._prefill = tuple(self._prefill[index] for index in kept)
        self._decision = self._decision._replace(prefill=self._prefill, chunks=chunks)

    def _land(self) -> tuple[Request, ...]:
        """Let those go on whose weights have landed; return who begins now without being asked about."""
        if self._roster.go_on(self._clock.now):
            self._batch_changed()
        begins = self._roster.land(self._clock.now)
        if self._scheduler.chunks:
            self._standing.prefilling |= {request.id: request for request in begins}
            return ()
        return begins

    def _batch_changed(self) -> None:
        """Members have come or gone at this boundary: steps take another time."""
        self._run = None
        self.most_running = max(self.most_running, len(self._batch.members))

    def _advance_prefill(self) -> None:
        roster, chunks, now = self._roster, self._decision.chunks, self._clock.now
        helped, ended = self._help is not None, False
        for index, request in enumerate(self._prefill):
            if not chunks or roster.chunk(request, chunks[index]):
                ended |= roster.prefilled(request, now, helped)
        if ended:
            self.holdings.sweep(now)
        self._prefill = ()
        self._run = None
        self.sight.steps_since_prefill = 0

    def _rearrange(self, pause: Sequence[Request], resume: Sequence[Request]) -> None:
        """Take requests out of the batch with the KV that they have, or put them back into it."""
        for request in pause:
            self._roster.pause(request)
        for request in resume:
            self._roster.resume(request)
        self._batch_changed()

    # Decode -----------------------------------------------------------------------------

    def _execute_decode(self) -> float:
        batch, run, decision = self._batch, self._run, self._decision
        switch_s = 0.0
        if decision.unmerge or decision.merge is not None:
            switch_s, run = self._switch(decision), None
        wanted = self._loader.ahead(self.sight)
        if wanted:
            self.incoming.prefetch(wanted, batch.step, self._clock.now)
        if run is None:
            start = max(self._clock.now, self.holdings.stalled_s) + switch_s
            self._assert_merged(batch)
            adapters = self._roster.adapters_in_use(())
            self._run = run = self._pace.decode_run(start, batch, self._skipped, adapters)
        steps = 1
        if self._fast_forward:
            steps = min(batch.steps_to_finish(), decision.steps)
            steps = min(self.holdings.steps_until_full(batch.step, self._clock.now, steps), steps)
            lands_s = self._standing.lands_s
            if lands_s != inf and self.waiting:
                steps = 1  # who could start then is asked as if those who wait for weights went on
            until_s = decision.until_s if decision.until_s < lands_s else lands_s
            if self.holdings.swapping is not None:
                until_s = min(until_s, self.holdings.look_s(batch.step, self._clock.now))
            if until_s != inf and until_s < run.end_s(run.done + steps):
                steps = max(run.first_boundary(until_s) - run.done, 1)
        self._steps = run.done + steps
        return run.end_s(self._steps)

    def neighbours_changed(self, by: int) -> None:
        """Engine `by` on this GPU has begun, ended or changed its phase: the next step takes another time."""
        self._change_pace(by)

    def slow_down(self, factor: float) -> None:
        """From the next step on all takes so many times as long."""
        self._pace.slowdown = factor
        self._change_pace()

    def _change_pace(self, by: int = -1) -> None:
        run = self._decoding
        if run is None:
            return
        self._renew = True
        self._cut(run, 0, by)

    def _cut(self, run: DecodeRun, on_arrival: int, by: int = -1) -> None:
        """End the run at the first boundary not before now, but not within its first `on_arrival` steps.

        Because of what happens at a boundary of replica `by`: of those at this very moment, lower numbers are over.
        """
        steps = run.first_boundary(self._clock.now)
        steps += by > self.id and run.end_s(steps) == self._clock.now
        steps = max(steps, run.done + max(on_arrival, 1))
        if steps < self._steps:
            self._steps = steps
            self._wake = self._clock.move(self._wake, run.end_s(steps), BOUNDARY, self.id)

    def finalize(self) -> None:
        """The clock has stopped: count the steps of a run that were over before, and note who was admitted."""
        ended_s = self._count_steps()
        if ended_s is not None:
            self._sample(ended_s)
        for request in (*self._batch, *self._standing, *self._prefill):
            self._recorder.left_running(request, self.id, self._clock.now)

    def _count_steps(self) -> float | None:
        """Count the steps that were over before now, of a run that is not; return when the last was, if any was."""
        run = self._decoding
        if run is None:
            return None
        self._steps = run.first_boundary(self._clock.now) - 1
        if self._steps <= run.done:
            return None
        ended_s = run.end_s(self._steps)
        self.busy_s += ended_s - self._since_s
        if self._tracing is not None:
            self._trace(ended_s)
        self._advance_decode(run, ended_s)
        self.holdings.make_room(self._batch.step, ended_s)
        self.record(ended_s, self._roster.waited_at(ended_s))
        return ended_s

    def fail(self) -> list[Handoff]:
        """Stop for good, with an iteration under way and all that is in memory; return the requests by arrival."""
        self._wake.callbacks = []
        broke_s = self._clock.now
        if self._run is not None or self._prefill:
            busy_s = self.busy_s + self._clock.now - self._since_s
            ended_s = self._count_steps()
            broke_s = self._since_s if ended_s is None else ended_s
            self.busy_s = busy_s  # with the step that broke off
        if self._tracing is not None:
            self._tracing.add(ReplicaFailed(self.id, self._clock.now, broke_s))
        roster, waiting = self._roster, {request.id for request in self.waiting}
        prefill = {request.id for request in self._prefill} - self._standing.prefilling.keys()
        requests = sorted(self.requests(), key=arrival_order)
        found: list[Handoff] = []
        for request in requests:
            lost_tokens = request.chunked_tokens
            if request.id in waiting:
                roster.dequeue(request)
            elif request.id in prefill:
                lost_tokens = request.prefill_tokens
            else:
                roster.stop(request, self._clock.now)
            request.cached_tokens = request.chunked_tokens = request.host_tokens = 0
            if request.admitted_s > self._clock.now:  # it was still waiting for its weights
                request.admitted_s = -1.0
                roster.stalls.broke_off(request, self._clock.now, self._help is not None)
            found.append(roster.depart(request, lost_tokens))
        self._run = None
        return found

    def inherit_counters(self, failed: Replica) -> None:
        """This one takes the place of one that has failed, as empty as it was at first; what that did counts."""
        self.busy_s, self.most_running, self.most_waiting = (
            failed.busy_s,
            failed.most_running,
            failed.most_waiting,
        )
        self.sight.iterations = failed.sight.iterations
        self.holdings.follows(failed.holdings, self._clock.now)
        self._found = 0, 0
        self._sample(self._clock.now)

    def _advance_decode(self, run: DecodeRun, now_s: float) -> None:
        batch = self._batch
        steps = self._steps - run.done
        if steps > 1:
            self._before_s = run.end_s(self._steps - 1)
        self._roster.token_times.decoded(run, steps, len(batch.members), now_s)
        others = self._standing.prefilling or self._standing.lands_s != inf
        if steps > 1 and self.holdings.prefixes is not None:
            if others:
                self._roster.stand_still(batch.step + steps - 1)
            # What had to go before somebody may finish now.
            self.holdings.make_room(batch.step + steps - 1, now_s)
        run.done = self._steps
        batch.step += steps
        if others:
            self._roster.stand_still(batch.step)
        self.sight.steps_since_prefill += steps
        self.sight.iterations += steps
        self._recorder.token_steps += steps * len(batch.members)
        if self._renew:
            self._run, self._renew = None, False
        if batch.steps_to_finish() == 0:
            self._run = None
            self._roster.finish_batch(self._clock.now)

    # Coming and going -------------------------------------------------------------------

    def requests(self) -> list[Request]:
        """All that have not left."""
        return self._roster.everyone(self._prefill)

    def send(self, request: Request, target: int) -> None:
        """Let a request go to another replica as soon as the iteration under way is over."""
        self._sends[request.id] = target
        if self._idle:
            self._rouse()
        elif (run := self._decoding) is not None:
            self._cut(run, 0)

    def bring(self, adapter: Adapter) -> None:
        """Send for an adapter as soon as the iteration under way is over, if there is room for it."""
        self._brings[adapter.id] = adapter
        if self._idle:
            self._fetch_brought()
        elif (run := self._decoding) is not None:
            self._cut(run, 0)

    def _fetch_brought(self) -> None:
        brings, self._brings = self._brings, {}
        if self.holdings.region is None:
            self.incoming.prefetch(brings.values(), self._batch.step, self._clock.now)

    def receive(self, handoff: Handoff, source: int) -> None:
        """A request comes at a boundary of replica `source`, -1: at none."""
        request, token_s, _ = handoff
        self._sends.pop(request.id, None)  # of an earlier visit, while this iteration has been under way
        now_s = self._clock.now
        # A boundary of this replica at the same moment is over if its number is lower.
        since_s = nextafter(now_s, inf) if source > self.id else now_s
        self._roster.comes(request, since_s, token_s)
        self.submit(request, by=source)
        if (run := self._decoding) is not None:
            self._cut(run, 0, source)  # it may stand before those who were refused

    def _hand_over(self) -> None:
        """Send those away that have not ended meanwhile."""
        sends, self._sends = self._sends, {}
        waiting = {request.id for request in self.waiting}
        for request in self.requests():
            if request.id not in sends:
                continue
            lost_tokens = request.chunked_tokens
            if request.id not in waiting:
                self._end_run_of(request)
                self._roster.put_back(request, self._clock.now)
            self._roster.dequeue(request)
            request.host_tokens = 0
            self._on_move(self._roster.depart(request, lost_tokens), self.id, sends[request.id])
        self.holdings.sweep(self._clock.now)
        if not self._batch.members:
            self.sight.preempted = False  # there is memory again for whoever made way

    def _fit(self) -> None:
        """Preempt those admitted last until grown KV fits; no adapter is left to evict."""
        batch = self._batch.members
        while self.holdings.make_room(self._batch.step, self._clock.now):
            request = self._standing.last()
            if request is None:
                request = batch[next(reversed(batch))]
                assert len(batch) > 1, f"request {request.id} alone outgrows the pool"
            self._preempt(request)
            self.sight.preempted = True

    def _preempt(self, request: Request) -> None:
        """An admitted request makes way for others."""
        self._end_run_of(request)
        self._roster.preempt(request, self._clock.now)

    def _end_run_of(self, request: Request) -> None:
        """Steps take another time without a member of the batch."""
        if request.id in self._batch.members:
            self._run = None
