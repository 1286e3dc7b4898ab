"""Serves a trace on the device, driven by a scheduler of the simulator's.

The loop is written anew, and shares with the simulated replica only what a policy sees: the queue, the memory's
bookkeeping and the batch. What takes time here is the device, and whatever Python does between two iterations.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from math import inf
from time import perf_counter

import numpy as np

from profiler.kernels.work import BASE_MODEL
from profiler.model.engine import Engine, Live
from simlora.core.adapter import Adapter
from simlora.core.request import Request
from simlora.engine.admission import Admission
from simlora.engine.batch import Batch
from simlora.engine.holdings import Holdings
from simlora.engine.incoming import Incoming
from simlora.engine.pace import Pace
from simlora.engine.scenario import Scenario
from simlora.engine.waiting import WaitingQueue
from simlora.latency.iteration import IterationModel
from simlora.latency.models import LatencyModels
from simlora.latency.transfer import AdapterLoad
from simlora.metrics.recorder import Recorder


@dataclass(frozen=True)
class Iteration:
    """What one iteration processed, and when.

    `batch_tokens`: the prompts of a prefill, or the contexts of a step; `tokens_sq`: their squares. `lora_tokens`: of
    requests with an adapter, of a step one each; `rank_sum` sums their ranks by request, `token_rank_sum` by token.
    """

    kind: str
    begin_s: float
    end_s: float
    requests: int
    batch_tokens: int
    tokens_sq: int
    lora_tokens: int
    rank_sum: int
    token_rank_sum: int
    max_rank: int
    adapters: int


class Loop:
    """One replica on the device; the scheduler sees it as its view.

    Time passes as on the device, except that idle time is skipped. All adapters are there from the start, as the
    scenario's loader must say.
    """

    def __init__(
        self,
        scenario: Scenario,
        engine: Engine,
        adapters: Sequence[Adapter],
        kernel: str,
        clock: Callable[[], float] = perf_counter,
    ) -> None:
        self.config = scenario.replica
        self.waiting = WaitingQueue()
        self.steps_since_prefill = 0
        self.max_wait_tokens = scenario.replica.max_wait_tokens
        self.preempted = False
        self.merged: Adapter | None = None
        self.prefilling: Sequence[Request] = ()
        self.loading = 0
        self.paused: Collection[Request] = ()
        self.served_adapters = len(adapters)
        self.recorder = Recorder(scenario.trace, 1, timeline=False)
        self.log: list[Iteration] = []
        self._scenario, self._engine, self._adapters, self._kernel = scenario, engine, adapters, kernel
        self._scheduler = scenario.policies.scheduler()
        latency = LatencyModels(
            IterationModel(scenario.calibration),
            scenario.policies.kernel(scenario.calibration),
            AdapterLoad(scenario.calibration),
        )
        self._pace = Pace(0, latency, self.config.tp)
        loader = scenario.policies.loader()
        self._holdings = Holdings(scenario, self.config, adapters, latency, self.recorder)
        merges = scenario.policies.merges
        self._incoming = Incoming(self._holdings, self.config, loader, merges, self.recorder)
        self._batch = Batch()
        self._live: dict[int, Live] = {}
        self._clock = clock
        self._origin_s = 0.0

    # What the scheduler sees --------------------------------------------------------------

    @property
    def now_s(self) -> float:
        """The time since the trace began, idle time included."""
        return self._clock() - self._origin_s

    @property
    def running(self) -> int:
        """Requests in the running batch."""
        return len(self._batch)

    @property
    def members(self) -> Collection[Request]:
        """The running batch."""
        return self._batch.members.values()

    @property
    def max_num_seqs(self) -> int:
        """The most requests that run together."""
        return self.config.max_num_seqs

    @property
    def iterations(self) -> int:
        """Iterations so far."""
        return len(self.log)

    @property
    def adapters(self) -> int:
        """Distinct adapters of the running batch."""
        return self._holdings.pool.pinned

    def due_s(self, request: Request) -> float:
        """When a request is to have its first token: nobody is promised anything here."""
        return inf

    def resident(self, adapter: Adapter) -> bool:
        """Whether an adapter is on the device: all are."""
        return True

    def in_use(self, adapter: Adapter) -> bool:
        """Whether a running request uses the adapter."""
        return self._holdings.pool.is_pinned(adapter)

    def upcoming(self) -> Iterable[Request]:
        """The waiting requests, in the order in which the scheduler would start them."""
        return self._scheduler.order(self)

    def trial(self, beside: Collection[Request] | None = None) -> Admission:
        """Start a trial of who could be admitted now; nobody is ever paused here."""
        assert beside is None, "a scheduler that pauses cannot be replayed"
        seats = self.config.max_num_seqs - len(self._batch)
        return Admission(self._holdings.reservation, self._holdings.pool, seats, self.config, self._batch)

    def pass_s(self, requests: Sequence[Request], chunks: Sequence[int]) -> float:
        """Seconds of a pass by the scenario's calibration: the device does not say beforehand."""
        batch = self._batch if len(self._batch) else None
        others = {r.adapter.id for r in requests if r.adapter is not None and not self.in_use(r.adapter)}
        return self._pace.prefill_s(requests, chunks, batch, 0, self.adapters + len(others))

    # The loop -----------------------------------------------------------------------------

    def run(self, progress: Callable[[int], None] = lambda ended: None) -> Recorder:
        """Serve every request to its end."""
        arrivals = self._requests()
        outputs = self._scenario.trace.output_tokens.tolist()
        prompts = self._prompts()
        next_in = 0
        self._origin_s = self._clock()
        while self.recorder.ended < len(arrivals):
            now = self.now_s
            if not self._batch and not self.waiting and arrivals[next_in].arrival_s > now:
                self._origin_s -= arrivals[next_in].arrival_s - now
                now = arrivals[next_in].arrival_s
            while next_in < len(arrivals) and arrivals[next_in].arrival_s <= now:
                self.waiting.add(arrivals[next_in])
                next_in += 1
            decision = self._scheduler.schedule(self)
            if decision.prefill:
                self._prefill(decision.prefill, prompts, outputs, now)
            else:
                assert self._batch, "the scheduler leaves the device idle beside a request"
                self._step(now)
            progress(self.recorder.ended)
        return self.recorder

    def _prefill(
        self,
        requests: Sequence[Request],
        prompts: Sequence[list[int]],
        outputs: Sequence[int],
        now: float,
    ) -> None:
        for request in requests:
            self.waiting.remove(request)
            request.admitted_s = now
            adapter = BASE_MODEL if request.adapter is None else request.adapter.id
            self._live[request.id] = Live(request.id, adapter, prompts[request.id])
        self._incoming.admit(requests, self._batch.step, self._batch.step, now)
        self._engine.prefill([self._live[request.id] for request in requests], self._kernel)
        self._note("prefill", now, requests, [request.prompt_tokens for request in requests])
        end = self.now_s
        for request in requests:
            request.first_token_s = end
            to_come = outputs[request.id] - 1
            if to_come:
                self._batch.join(request, 1, to_come)
            else:
                self._finish(request, end)
        self._holdings.sweep(end)
        self.steps_since_prefill = 0

    def _step(self, now: float) -> None:
        members = list(self._batch)
        contexts = [self._batch.context(request) for request in members]
        self._engine.decode([self._live[request.id] for request in members], self._kernel)
        self._note("decode", now, members, contexts)
        end = self.now_s
        self._batch.step += 1
        self.steps_since_prefill += 1
        for request in list(self._batch.finished()):
            self._finish(request, end)
        self._holdings.sweep(end)

    def _finish(self, request: Request, now: float) -> None:
        self._engine.leave(self._live.pop(request.id))
        self._holdings.release(request, self._batch.step, now)
        self._incoming.left(request, now)
        self.recorder.finish(request, 0, now)

    def _note(self, kind: str, begin_s: float, requests: Sequence[Request], tokens: Sequence[int]) -> None:
        each = tokens if kind == "prefill" else [1] * len(requests)
        counted = [
            (request.rank, count)
            for request, count in zip(requests, each, strict=True)
            if request.adapter is not None
        ]
        self.log.append(
            Iteration(
                kind=kind,
                begin_s=begin_s,
                end_s=self.now_s,
                requests=len(requests),
                batch_tokens=sum(tokens),
                tokens_sq=sum(each * each for each in tokens),
                lora_tokens=sum(count for _, count in counted),
                rank_sum=sum(rank for rank, _ in counted),
                token_rank_sum=sum(rank * count for rank, count in counted),
                max_rank=max((rank for rank, _ in counted), default=0),
                adapters=len({request.adapter.id for request in requests if request.adapter is not None}),
            )
        )

    def _requests(self) -> list[Request]:
        trace = self._scenario.trace
        served = (*self._adapters, None)
        columns = zip(
            trace.adapter.tolist(),
            trace.arrival_s.tolist(),
            trace.prompt_tokens.tolist(),
            trace.max_output_tokens.tolist(),
            strict=True,
        )
        return [Request(id, served[adapter], *rest) for id, (adapter, *rest) in enumerate(columns)]

    def _prompts(self) -> list[list[int]]:
        rng = np.random.default_rng(self._scenario.seed)
        vocab = self._scenario.model.vocab
        return [rng.integers(0, vocab, tokens).tolist() for tokens in self._scenario.trace.prompt_tokens]
