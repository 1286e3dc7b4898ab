"""A replica's iterations: how they are launched, and what happens to requests when they are over."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from simlora.engine.clock import Clock, Event
from simlora.engine.replica.adapter_loader import AdapterLoader
from simlora.engine.replica.decode_window import DecodeWindow
from simlora.engine.replica.host_link import HostLink
from simlora.engine.replica.kv_cache_manager import KVCacheManager
from simlora.engine.replica.model_runner import ModelRunner, Pass
from simlora.engine.replica.part import NO_HOOKS, Part
from simlora.engine.replica.request_table import RequestTable
from simlora.engine.replica.running_batch import distinct_adapters
from simlora.engine.replica.scheduler_view import SchedulerView
from simlora.engine.replica_config import ReplicaConfig
from simlora.metrics.recorder import Recorder
from simlora.policies.scheduling.base import SchedulerOutput

P = TypeVar("P", bound=Part)
Ask = Callable[[SchedulerView], SchedulerOutput]
"""Asks the scheduler what runs next."""


class Iterations:
    """Launches the iterations that the scheduler's `output` asks for, and processes what they did at their boundary.

    `busy_s` is the time spent in iterations and in waiting for weights or KV. The iterations under way were launched at
    `since_s`; the last prefill began at `start_s`, after its loads. `found` are the numbers of running and of waiting
    requests at the last boundary; empty before the first. `ask` is the scheduler's `schedule`, or what parts make of
    it; `actions` apply the actions of its output, by type.
    """

    __slots__ = (
        "actions",
        "ask",
        "busy_s",
        "clock",
        "config",
        "fast_forward",
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
        "runner",
        "since_s",
        "start_s",
        "table",
        "view",
        "wake_event",
    )
    wake_event: Event

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
        ask: Ask,
        fast_forward: bool,
    ) -> None:
        self.id, self.config, self.clock, self.recorder = id, config, clock, recorder
        self.table, self.loader, self.host_link = table, loader, host_link
        self.runner, self.view, self.ask, self.fast_forward = runner, view, ask, fast_forward
        self.actions: dict[type, Callable[[Any], None]] = {}
        self.idle = True
        self.busy_s = self.start_s = self.since_s = 0.0
        self.most_running = self.most_waiting = 0
        self.found: tuple[int, ...] = ()
        self.output = SchedulerOutput()
        self.hooks = NO_HOOKS

    def part(self, kind: type[P]) -> P | None:
        """Return the part of that kind; None: the replica has none."""
        return next((part for part in self.hooks.parts if isinstance(part, kind)), None)

    @property
    def kv(self) -> KVCacheManager:
        """The KV in HBM."""
        return self.table.kv

    @property
    def decoding(self) -> DecodeWindow | None:
        """The window whose batch decodes, with no prefill beside it."""
        return None if self.table.prefill else self.table.window

    # Launch -----------------------------------------------------------------------------

    def launch_prefill(self, now_s: float) -> float:
        """Launch a prefill, and with `output.decode` a decode step in the same pass; return when it ends."""
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
        host_s = self._host_s(decoding is not None, adapters) if runner.adds_host else 0.0
        pass_s = runner.prefill_s(Pass(requests, tokens, decoding, host_s, adapters))
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

    def launch_decode(self, now_s: float) -> float:
        """Begin or continue the decode window, up to the first boundary that is needed.

        Fast-forward takes the fewest steps, and the earliest time, that anything declares.
        """
        table, output, hooks, batch = self.table, self.output, self.hooks, self.table.batch
        delay_s = 0.0
        for prepare in hooks.prepare:
            delay_s += prepare(output, now_s)
        if delay_s:
            table.end_window()
        window = table.window
        if window is None:
            start_s = self.runner.stalled_until_s
            start_s, adapters = (start_s if start_s > now_s else now_s) + delay_s, table.count_adapters(())
            host_s = self._host_s(True, adapters) if self.runner.adds_host else 0.0
            window = self.runner.decode(start_s, batch, host_s, adapters)
            window.finish = batch.steps_to_finish()
            table.window = window
        if not self.fast_forward:
            window.stop = window.done + 1
            return window.end_s(window.stop)
        steps, until_s = window.finish - window.done, output.until_s
        if output.steps < steps:
            steps = output.steps
        until_full = table.kv.steps_until_full(steps, now_s)
        window.full = (window.done + until_full) * table.kv.certain  # 0: room is made at every boundary
        if until_full < steps:
            steps = until_full
        for part in hooks.bounds:
            steps, until_s = min(steps, part.steps(steps)), min(until_s, part.next_s())
            assert steps > 0, f"{type(part).__name__}.steps leaves no step until the next boundary"
        window.stop = window.done + steps
        end_s = window.end_s(window.stop)
        if until_s < end_s:
            window.stop = window.done + max(window.first_boundary(until_s) - window.done, 1)
            end_s = window.end_s(window.stop)
        return end_s

    def _host_s(self, decodes: bool, adapters: int) -> float:
        """Return what the engine's host adds to an iteration with so many pinned adapters.

        Without a decode step only those of the prefill are in the iteration.
        """
        own = adapters if decodes else distinct_adapters(self.table.prefill)
        return self.runner.latency.host_s(self.output.skipped, own)

    # Process output ---------------------------------------------------------------------

    def process_output(self, now_s: float) -> None:
        """Move tokens, memory and the batch to the boundary that was reached."""
        table, window = self.table, self.table.window
        self.busy_s += now_s - self.since_s
        for on_ran in self.hooks.on_ran:
            on_ran(now_s)
        self.view.preempted = False
        if window is not None:
            self.count_steps(window, now_s)
        else:
            assert table.prefill, "a batch decodes without a window"
        if table.prefill:
            self._complete_prefill(now_s)
        if window is None:
            return
        if window.done >= window.full and table.kv.make_room(now_s):
            self._preempt_until_it_fits(now_s)
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
        """The window's steps up to `stop` are over: each running request has gained a token a step, or more."""
        table, hooks, batch = self.table, self.hooks, self.table.batch
        steps, size = window.stop - window.done, len(batch.members)
        table.stats.decoded(window, steps, size, now_s)
        batch.step += steps - 1
        for before_last_step in hooks.before_last_step:
            before_last_step(window, steps, now_s)
        batch.step += 1
        window.done = window.stop
        self.view.steps_since_prefill += steps
        self.view.iterations += steps
        self.recorder.token_steps += steps * size
        if window.done == window.finish:
            table.finish_batch(self.clock.now)

    def _preempt_until_it_fits(self, now_s: float) -> None:
        """Preempt the requests admitted last until grown KV fits; no idle adapter is left to evict.

        The last one, too, beside KV that a part keeps until it is fetched.
        """
        table, members = self.table, self.table.batch.members
        while table.kv.make_room(now_s):
            request = table.last()
            if request is None:
                request = members[next(reversed(members))]
                alone = len(members) == 1 and not any(part.awaits() for part in self.hooks.parts)
                assert not alone, f"request {request.id} alone outgrows the pool"
            table.preempt(request, now_s)
            self.view.preempted = bool(members)  # with none, there is memory again once a part lets it go

    def stall(self, until_s: float) -> None:
        """Launch nothing before that time, and end the decode window."""
        self.runner.stall(until_s)
        self.table.end_window()

    # Records ----------------------------------------------------------------------------

    def record(self, waiting: int) -> None:
        """Note how many requests run and wait at the boundary that was reached."""
        running = len(self.table.batch.members)
        if running > self.most_running:
            self.most_running = running
        if waiting > self.most_waiting:
            self.most_waiting = waiting
        self.found = running, waiting

    def record_running(self) -> None:
        """Requests have joined the running batch at a boundary that was noted before."""
        self.most_running = max(self.most_running, len(self.table.batch.members))

    def sample(self, now_s: float) -> None:
        """Record the levels found at the last boundary, and the memory in use after its decisions."""
        kv = self.table.kv
        running, waiting = self.found
        more: tuple[int, ...] = ()
        for sample in self.hooks.sample:
            more += sample()
        self.recorder.boundary(
            self.id, now_s, running, waiting, kv.tokens(), kv.adapters.adapter_tokens, more
        )
