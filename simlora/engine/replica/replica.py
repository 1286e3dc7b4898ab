"""One copy of the base model: its loop from one iteration boundary to the next."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf
from typing import Any, TypeVar

from simlora.core.request import Request
from simlora.engine.clock import BOUNDARY, Clock
from simlora.engine.replica.adapter_loader import AdapterLoader
from simlora.engine.replica.decode_window import DecodeWindow
from simlora.engine.replica.hooks import NO_HOOKS, Hooks
from simlora.engine.replica.host_link import HostLink
from simlora.engine.replica.kv_cache_manager import KVCacheManager
from simlora.engine.replica.model_runner import ModelRunner
from simlora.engine.replica.part import Part
from simlora.engine.replica.request_table import RequestStatus, RequestTable
from simlora.engine.replica.scheduler_view import SchedulerView
from simlora.engine.replica_config import ReplicaConfig
from simlora.metrics.recorder import Recorder
from simlora.policies.scheduling.base import Abort, Note, SchedulerOutput

P = TypeVar("P", bound=Part)


class Replica:
    """Decides what runs next, launches it, waits for the boundary, and processes its output: docs/clock.md.

    A mechanism that not every system has is a part (engine/parts), which defines some of the hooks of `Part`.
    `busy_s` is the time spent in iterations and in waiting for weights or KV; `output` is the scheduler's last.
    `actions` apply what schedulers do besides, by type.
    """

    __slots__ = (
        "_fast_forward",
        "actions",
        "ask",
        "busy_s",
        "clock",
        "config",
        "found",
        "hooks",
        "host_link",
        "id",
        "idle",
        "loader",
        "most_running",
        "most_waiting",
        "output",
        "recorder",
        "resumes",
        "runner",
        "since_s",
        "start_s",
        "table",
        "view",
        "wake_event",
    )

    def __init__(
        self,
        id: int,
        config: ReplicaConfig,
        clock: Clock,
        recorder: Recorder,
        table: RequestTable,
        loader: AdapterLoader,
        host_link: HostLink,
        runner: ModelRunner,
        view: SchedulerView,
        ask: Callable[[SchedulerView], SchedulerOutput],
        fast_forward: bool,
    ) -> None:
        self.id, self.config = id, config
        self.table, self.loader, self.host_link, self.runner, self.view = (
            table,
            loader,
            host_link,
            runner,
            view,
        )
        self.ask = ask
        self.clock, self.recorder, self._fast_forward = clock, recorder, fast_forward
        self.busy_s = 0.0
        self.most_running = self.most_waiting = 0
        self.output = SchedulerOutput()
        self.idle = True
        self.actions: dict[type, Callable[[Any], None]] = {Abort: self._abort, Note: self._note}
        self.hooks = NO_HOOKS
        self.start_s = 0.0  # when the prefill begins that was admitted last
        self.since_s = 0.0  # when the iterations under way were launched
        self.wake_event = clock.never(lambda event: None)  # it has not started
        self.found = 0, 0  # running and waiting requests at the last boundary
        self.resumes = False  # it takes the place of a failed replica

    def attach(self, hooks: Hooks) -> None:
        """Take the hooks of the parts; called once, before anything runs."""
        self.hooks = self.table.hooks = hooks

    def part(self, kind: type[P]) -> P | None:
        """Return the part of that kind; None: the replica has none."""
        return next((part for part in self.hooks.parts if isinstance(part, kind)), None)

    @property
    def kv(self) -> KVCacheManager:
        """The KV in HBM."""
        return self.table.kv

    # The loop ---------------------------------------------------------------------------

    def start(self) -> None:
        """Take the first turn. A replica that takes the place of a failed one goes on with its records."""
        self._turn(self.clock.now)
        if self.resumes:
            self.sample(self.clock.now)

    def _boundary(self, event: object) -> None:
        """An iteration boundary is reached: process the output, and take the next turn."""
        now_s, table = self.clock.now, self.table
        if table.prefill or table.batch.members:
            self.process_output(now_s)
        self.idle = False
        self.record(table.queue.count)
        self._turn(now_s)
        self.sample(now_s)

    def _turn(self, now_s: float) -> None:
        """Decide what runs until the next boundary, and launch it, or sleep."""
        table = self.table
        for at_boundary in self.hooks.at_boundary:
            at_boundary(now_s)
        if table.batch.members or table.queue.count or table.held_count:
            self.schedule(now_s)
        for on_turn in self.hooks.on_turn:
            on_turn(now_s)
        if table.prefill:
            end_s = self._launch_prefill(now_s)
        elif table.batch.members:
            end_s = self._launch_decode(now_s)
        else:
            self._sleep(now_s)
            return
        self.wake_event = self.clock.call(end_s, BOUNDARY, self.id, self._boundary)
        self.since_s = now_s

    def _sleep(self, now_s: float) -> None:
        """Wait for a request, or until a part needs a boundary."""
        self.idle = True
        self.table.end_window()
        times_s = (part.next_s() for part in self.hooks.bounds)
        wake_s = min((time_s for time_s in times_s if time_s > now_s), default=inf)
        if wake_s == inf:
            self.wake_event = self.clock.never(self._boundary)
        else:
            self.wake_event = self.clock.call(wake_s, BOUNDARY, self.id, self._boundary)

    def wake(self) -> None:
        """There is something to do for a replica that sleeps."""
        self.idle = False
        self.wake_event = self.clock.move(self.wake_event, self.clock.now, BOUNDARY, self.id)

    # Schedule ---------------------------------------------------------------------------

    def schedule(self, now_s: float) -> None:
        """Ask the scheduler what runs next, apply its actions, and admit the requests that it starts.

        Requests whose copies have just ended begin without being asked about. If all requests of a prefill are
        deferred, the scheduler is asked again.
        """
        table, hooks = self.table, self.hooks
        for take_ready in hooks.take_ready:
            if ready := take_ready(now_s):
                self.output, table.prefill, self.start_s = SchedulerOutput(prefill=ready), ready, now_s
                return
        while True:
            output = self.output = self.ask(self.view)
            for action in output.actions:
                self._apply(action)
            table.prefill = output.prefill
            if output.prefill:
                self.admit(output, now_s)
                if table.prefill:
                    return
            elif table.batch.members:
                return
            elif not any(ask_again(output, now_s) for ask_again in hooks.ask_again):
                self._assert_nothing_could_run()
                return

    def _apply(self, action: object) -> None:
        handler = self.actions.get(type(action))
        assert handler is not None, (
            f"a scheduler asks to {type(action).__name__} and does not declare that it does"
        )
        handler(action)

    def _abort(self, action: Abort) -> None:
        self.table.abort(action.request, action.reason, self.clock.now)

    def _note(self, action: Note) -> None:
        self.recorder.note(self.id, self.clock.now, action.name, action.value)

    def _assert_nothing_could_run(self) -> None:
        held = self.table.held
        if held[RequestStatus.LOADING_ADAPTER] or held[RequestStatus.ASSISTED]:
            return
        head = next(iter((*self.table.queue, *self.table.requests())), None)
        assert head is None, (
            f"{self.view.scheduler_name} leaves replica {self.id} idle beside request "
            f"{head.id}, which could run"
        )

    def admit(self, output: SchedulerOutput, now_s: float) -> None:
        """Give the prefill's new requests their memory, and load what they lack."""
        table, hooks = self.table, self.hooks
        fresh: Sequence[Request] = output.prefill
        for before_admit in hooks.before_admit:
            fresh = before_admit(fresh)
        for request in fresh:
            table.dequeue(request)
        # A request has its KV when the iteration ends, which may take the batch a step further.
        step = table.batch.step + 1 if output.decode and table.batch.members else table.batch.step
        plan = self.loader.admit(fresh, step, now_s)
        for on_plan in hooks.on_plan:
            on_plan(plan, now_s)
        if plan.weights_s > now_s:
            own_s = [self.loader.weights_s(request) for request in table.prefill]
            table.stats.stall(table.prefill, own_s, now_s, plan.weights_s)
        self.start_s = max(plan.kv_s, plan.weights_s)

    # Launch -----------------------------------------------------------------------------

    def _launch_prefill(self, now_s: float) -> float:
        table, output, runner, requests = self.table, self.output, self.runner, self.table.prefill
        assert self.hooks.on_prefilled or not output.chunks, (
            "a scheduler prefills in chunks and does not say so"
        )
        table.window = None
        start_s = max(self.start_s, runner.stalled_until_s)
        for prepare in self.hooks.prepare:
            start_s += prepare(output, now_s)
        tokens = output.chunks or [request.prefill_tokens for request in requests]
        decoding = table.batch if output.decode and table.batch.members else None
        adapters = table.count_adapters(requests)
        pass_s = runner.prefill_s(requests, tokens, decoding, output.skipped, adapters)
        for assist in self.hooks.assist:
            start_s, pass_s = assist(requests, tokens, start_s, pass_s)
        for request in requests:
            if request.admitted_s < 0.0:
                request.admitted_s = start_s
        self.start_s = start_s
        if decoding is None:
            self.view.iterations += 1
        else:
            table.window = DecodeWindow(start_s, pass_s, 0.0, stop=1)
            table.window.finish = table.batch.steps_to_finish()
        return start_s + pass_s

    def _launch_decode(self, now_s: float) -> float:
        """Begin or continue the decode window, up to the first boundary that is needed.

        Fast-forward takes the fewest steps, and the earliest time, that anything declares.
        """
        table, output, hooks, batch = self.table, self.output, self.hooks, self.table.batch
        delay_s = 0.0
        for prepare in hooks.prepare:
            delay_s += prepare(output, now_s)
        window = table.window
        if window is None:
            start_s = max(now_s, self.runner.stalled_until_s) + delay_s
            window = self.runner.decode(start_s, batch, output.skipped, table.count_adapters(()))
            window.finish = batch.steps_to_finish()
            table.window = window
        if not self._fast_forward:
            window.stop = window.done + 1
            return window.end_s(window.stop)
        steps = min(window.finish - window.done, output.steps)
        until_full = table.kv.steps_until_full(steps, now_s)
        window.full = (window.done + until_full) * table.kv.certain
        steps = min(steps, until_full)
        until_s = output.until_s
        for part in hooks.bounds:
            steps, until_s = min(steps, part.steps(steps)), min(until_s, part.next_s())
        window.stop = window.done + steps
        end_s = window.end_s(window.stop)
        if until_s < end_s:
            window.stop = window.done + max(window.first_boundary(until_s) - window.done, 1)
            end_s = window.end_s(window.stop)
        return end_s

    # Process output ---------------------------------------------------------------------

    def process_output(self, now_s: float) -> None:
        """Move tokens, memory and the batch to the boundary that was reached."""
        table, window = self.table, self.table.window
        self.busy_s += now_s - self.since_s
        for on_ran in self.hooks.on_ran:
            on_ran(now_s)
        self.view.preempted = False
        if window is None:
            self._complete_prefill(now_s)
            return
        self.count_steps(window, now_s)
        if table.prefill:
            self._complete_prefill(now_s)
        if window.done >= window.full and table.kv.make_room(now_s):
            self._fit(now_s)
        for after_decode in self.hooks.after_decode:
            after_decode(now_s)

    def _complete_prefill(self, now_s: float) -> None:
        """A prefill has ended: each request whose prompt is complete has its first token."""
        table, ended = self.table, False
        requests = table.prefill
        for on_prefilled in self.hooks.on_prefilled:
            requests = tuple(on_prefilled(requests, self.output.chunks))
        for request in requests:
            ended |= table.prefilled(request, now_s)
        if ended:
            table.sweep(now_s)
        table.prefill = ()
        table.window = None
        self.view.steps_since_prefill = 0

    def count_steps(self, window: DecodeWindow, now_s: float) -> None:
        """The window's steps up to `stop` are over: each member of the batch has as many tokens more."""
        table, hooks, batch = self.table, self.hooks, self.table.batch
        steps, size = window.stop - window.done, len(batch.members)
        table.stats.decoded(window, steps, size, now_s)
        batch.step += steps - 1
        for before_last_step in hooks.before_last_step:
            before_last_step(window, steps, now_s)
        batch.step += 1
        window.done = window.stop
        for on_steps in hooks.on_steps:
            on_steps(batch.step)
        self.view.steps_since_prefill += steps
        self.view.iterations += steps
        self.recorder.token_steps += steps * size
        if window.done == window.finish:
            table.finish_batch(self.clock.now)

    def _fit(self, now_s: float) -> None:
        """Preempt the requests admitted last until grown KV fits; no idle adapter is left to evict."""
        table, members = self.table, self.table.batch.members
        while table.kv.make_room(now_s):
            request = table.last()
            if request is None:
                request = members[next(reversed(members))]
                assert len(members) > 1, f"request {request.id} alone outgrows the pool"
            table.preempt(request, now_s)
            self.view.preempted = True

    # Records ----------------------------------------------------------------------------

    def record(self, waiting: int) -> None:
        """Note how many requests run and wait at the boundary that was reached."""
        running = len(self.table.batch.members)
        self.most_running = max(self.most_running, running)
        self.most_waiting = max(self.most_waiting, waiting)
        self.found = running, waiting

    def record_running(self) -> None:
        """Requests have joined the running batch at a boundary that was noted before."""
        self.most_running = max(self.most_running, len(self.table.batch.members))

    def sample(self, now_s: float) -> None:
        """Record what the last boundary found, and what is held from now on, which was decided there."""
        kv = self.table.kv
        sample: tuple[float, ...] = self.id, now_s, *self.found, kv.tokens(), kv.adapters.adapter_tokens
        for more in self.hooks.sample:
            sample += more()
        self.recorder.boundary(sample)

    # From outside -----------------------------------------------------------------------

    @property
    def decoding(self) -> DecodeWindow | None:
        """The window whose batch decodes, with no prefill beside it."""
        return None if self.table.prefill else self.table.window

    def submit(self, request: Request, by: int = -1) -> None:
        """A request arrives in the queue, at a boundary of replica `by` if that replica has sent it."""
        self.table.enqueue(request)
        if self.idle:
            self.wake()
        elif (window := self.table.window) is not None and not self.table.prefill:
            on_arrival = self.output.on_arrival
            for wants_boundary in self.hooks.on_arrival:
                if wants_boundary():
                    on_arrival = 0
            if on_arrival < window.stop - window.done:
                self._cut(window, on_arrival, by)

    def interrupt(self, by: int = -1) -> bool:
        """End the decode window's launch at the first boundary from now on; return whether one is under way."""
        window = self.decoding
        if window is None:
            return False
        self._cut(window, 0, by)
        return True

    def _cut(self, window: DecodeWindow, on_arrival: int, by: int) -> None:
        """Stop at the first boundary not before now, but not within the window's first `on_arrival` steps.

        The reason is an event at a boundary of replica `by`: of boundaries at this very moment, those of lower
        numbers are over.
        """
        now_s = self.clock.now
        steps = window.first_boundary(now_s)
        steps += by > self.id and window.end_s(steps) == now_s
        steps = max(steps, window.done + max(on_arrival, 1))
        if steps < window.stop:
            window.stop = steps
            self.wake_event = self.clock.move(self.wake_event, window.end_s(steps), BOUNDARY, self.id)

    def stall(self, until_s: float) -> None:
        """Nothing is launched before then, so the decode window does not go on."""
        self.runner.stall(until_s)
        self.table.end_window()
