"""Runs the iterations of a simulated replica on a real device: its own loop then serves a trace there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import cycle, islice
from time import perf_counter

import numpy as np

from profiler.model.engine import Engine, Live
from profiler.replay.compare import Served, table
from profiler.replay.iteration_log import Iteration, iteration
from simlora.core.request import Request
from simlora.engine.cluster.simulation import Simulation
from simlora.engine.replica.decode_window import DecodeWindow
from simlora.engine.replica.model_runner import ModelRunner, Pass
from simlora.engine.replica.part import Part
from simlora.engine.replica.replica import Replica
from simlora.engine.replica.running_batch import RunningBatch
from simlora.engine.scenario import Scenario
from simlora.latency.models import LatencyModels


class DeviceRunner(ModelRunner):
    """Runs each iteration when it is launched; it takes the seconds that really passed. `log` has them all.

    If an iteration follows another at once, its seconds begin where the other's ended, so the host's work between the
    two belongs to it. After idle time, which is skipped, they begin when the replica looks for what to run.
    `priced_s` asks the latency models, as the device does not say beforehand.
    """

    __slots__ = (
        "_boundary_s",
        "_clock",
        "_end_s",
        "_engine",
        "_kernel_name",
        "_live",
        "_prompts",
        "_since_s",
        "log",
    )

    def __init__(
        self,
        latency: LatencyModels,
        engine: Engine,
        kernel: str,
        prompts: Sequence[Sequence[int]],
        clock: Callable[[], float],
    ) -> None:
        super().__init__(latency)
        self._engine, self._kernel_name, self._prompts, self._clock = engine, kernel, prompts, clock
        self._live: dict[int, Live] = {}
        self._boundary_s = 0.0  # the boundary at which the replica stands
        self._end_s = -1.0  # the boundary at which the last iteration ended
        self._since_s = 0.0  # by the device's clock, since when time counts for the next iteration
        self.log: list[Iteration] = []

    def at_boundary(self, now_s: float) -> None:
        """The replica stands at a boundary: at the end of the last iteration, or after idle time."""
        self._boundary_s = now_s
        if now_s != self._end_s:
            self._since_s = self._clock()

    def prefill_s(self, work: Pass) -> float:
        assert work.decoding is None, "the device prefills or decodes, and a pass is to do both"
        self._engine.prefill(list(map(self._join, work.requests, work.tokens)), self._kernel_name)
        return self._ran("prefill", work.requests, work.tokens)

    def decode(self, start_s: float, batch: RunningBatch, host_s: float, adapters: int) -> DecodeWindow:
        assert start_s == self._boundary_s, "a decode step is to begin later, and the device does not wait"
        requests = list(batch)
        contexts = [batch.context(request) for request in requests]
        self._engine.decode([self._live[request.id] for request in requests], self._kernel_name)
        return DecodeWindow(start_s, self._ran("decode", requests, contexts), 0.0)

    def leave(self, request: Request) -> None:
        """Give back a request's part of the device's cache."""
        self._engine.leave(self._live.pop(request.id))

    def leave_all(self) -> None:
        """Give back what requests have that the run did not finish."""
        for live in self._live.values():
            self._engine.leave(live)
        self._live.clear()

    def _join(self, request: Request, tokens: int) -> Live:
        """Return a request with so many tokens to prefill: its prompt, and what is recomputed or padded.

        What the latter tokens are does not count, as the weights are random.
        """
        prompt = list(islice(cycle(self._prompts[request.id]), tokens))
        live = self._live[request.id] = Live(request.id, request.adapter_id, prompt)
        return live

    def _ran(self, kind: str, requests: Sequence[Request], tokens: Sequence[int]) -> float:
        """An iteration is over: log it, and return its seconds."""
        since_s, self._since_s = self._since_s, self._clock()
        seconds = self._since_s - since_s
        self._end_s = self._boundary_s + seconds
        self.log.append(iteration(kind, self._boundary_s, self._end_s, requests, tokens))
        return seconds


class OnDevice(Part):
    """Has every decode step launched anew, and takes requests that leave out of the device's cache."""

    __slots__ = ("_runner", "_table")

    def __init__(self, replica: Replica) -> None:
        assert isinstance(replica.runner, DeviceRunner), "the replica's iterations do not run on a device"
        self._runner, self._table = replica.runner, replica.table

    def at_boundary(self, now_s: float) -> None:
        self._table.end_window()
        self._runner.at_boundary(now_s)

    def on_release(self, request: Request, now_s: float) -> None:
        self._runner.leave(request)


def serve(
    scenario: Scenario,
    engine: Engine,
    kernel: str,
    progress: Callable[[int], None] = lambda ended: None,
    clock: Callable[[], float] = perf_counter,
) -> Served:
    """Simulate the scenario with iterations that run on the device. All adapters are there from the start."""
    prompts = _prompts(scenario)

    def on_device(latency: LatencyModels) -> DeviceRunner:
        return DeviceRunner(latency, engine, kernel, prompts, clock)

    step_by_step = replace(scenario, fast_forward=False, parts=(*scenario.parts, OnDevice))
    simulation = Simulation(step_by_step, on_device)
    requests = simulation.run(progress).requests()
    runner = simulation.fleet.replicas[0].runner
    assert isinstance(runner, DeviceRunner), "the replica's iterations did not run on the device"
    runner.leave_all()
    return Served(requests, table(runner.log))


def _prompts(scenario: Scenario) -> list[list[int]]:
    rng = np.random.default_rng(scenario.seed)
    return [rng.integers(0, scenario.model.vocab, tokens).tolist() for tokens in scenario.trace.prompt_tokens]
