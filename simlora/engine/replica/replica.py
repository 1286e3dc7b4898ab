"""One copy of the base model: its loop from one iteration boundary to the next."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

from simlora.core.request import Request
from simlora.engine.clock import BOUNDARY, Event
from simlora.engine.replica.decode_window import DecodeWindow
from simlora.engine.replica.iterations import Iterations
from simlora.engine.replica.part import Hooks
from simlora.policies.scheduling.base import Abort, Note, SchedulerOutput


class Replica(Iterations):
    """Decides what runs next, launches it, waits for the boundary, and processes its output: docs/clock.md.

    A mechanism that not every system has is a part (engine/parts), which defines some of the hooks of `Part`.
    """

    __slots__ = ()

    def attach(self, hooks: Hooks) -> None:
        """Take the hooks of the parts; called once, before anything runs."""
        self.hooks = self.table.hooks = hooks
        self.wake_event = Event(BOUNDARY, self.id, self.boundary)
        self.actions[Abort], self.actions[Note] = self._abort, self._note

    # The loop ---------------------------------------------------------------------------

    def start(self) -> None:
        """Take the first turn: decide what runs until the next boundary, and launch it.

        The replacement of a failed replica keeps its counters.
        """
        self._turn(self.clock.now)
        if self.found:
            self.sample(self.clock.now)

    def boundary(self) -> None:
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
            end_s = self.launch_prefill(now_s)
        elif table.batch.members:
            end_s = self.launch_decode(now_s)
        else:
            self._sleep(now_s)
            return
        self.clock.schedule(self.wake_event, end_s)
        self.since_s = now_s

    def _sleep(self, now_s: float) -> None:
        """Wait for a request, or until a part needs a boundary."""
        self.idle = True
        self.table.end_window()
        ended = self.recorder.all_ended()
        wake_s = inf
        for part in self.hooks.bounds:
            if part.outlives_requests or not ended:
                time_s = part.next_s()
                if now_s < time_s < wake_s:
                    wake_s = time_s
        if wake_s < inf:
            self.clock.schedule(self.wake_event, wake_s)

    def wake(self) -> None:
        """Schedule a boundary now; the replica is idle."""
        self.idle = False
        self.clock.schedule(self.wake_event, self.clock.now)

    # Schedule ---------------------------------------------------------------------------

    def schedule(self, now_s: float) -> None:
        """Ask the scheduler what runs next, apply its actions, and admit the requests that it starts.

        Requests whose copies have ended start without asking the scheduler. If all requests of a prefill are deferred,
        the scheduler is asked again.
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
        if any(part.awaits() for part in self.hooks.parts):
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
        # In a mixed pass the batch takes a step meanwhile, so KV is charged from the next step on.
        step = table.batch.step + 1 if output.decode and table.batch.members else table.batch.step
        plan = self.loader.admit(fresh, step, now_s)
        for on_plan in hooks.on_plan:
            on_plan(plan, now_s)
        if plan.weights_s > now_s:
            own_s = [self.loader.weights_s(request) for request in table.prefill]
            table.stats.stall(table.prefill, own_s, now_s, plan.weights_s)
        self.start_s = max(plan.kv_s, plan.weights_s)

    # From outside -----------------------------------------------------------------------

    def submit(self, request: Request, by: int = -1) -> None:
        """A request arrives in the queue, at a boundary of replica `by` if that replica has sent it."""
        self.table.enqueue(request)
        if self.idle:
            self.wake()
        elif not self.table.prefill and (window := self.table.window) is not None:
            on_arrival = self.output.on_arrival
            for wants_boundary in self.hooks.on_arrival:
                if wants_boundary():
                    on_arrival = 0
            if on_arrival < window.stop - window.done:
                self._cut(window, on_arrival, by)

    def interrupt(self, by: int = -1) -> bool:
        """Stop the decode window at its first boundary not before now; return whether one is under way."""
        window = self.decoding
        if window is None:
            return False
        self._cut(window, 0, by)
        return True

    def _cut(self, window: DecodeWindow, on_arrival: int, by: int) -> None:
        """Stop at the first boundary not before now, but not within the window's first `on_arrival` steps.

        The reason is an event at a boundary of replica `by`. Boundaries at the same moment happen in order of replica.
        """
        now_s = self.clock.now
        steps = window.first_boundary(now_s)
        steps += by > self.id and window.end_s(steps) == now_s
        steps = max(steps, window.done + max(on_arrival, 1))
        if steps < window.stop:
            window.stop = steps
            self.clock.schedule(self.wake_event, window.end_s(steps))
