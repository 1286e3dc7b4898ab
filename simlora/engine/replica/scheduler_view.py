"""What policies see of a replica: the view of `policies/views.py`, which shows and changes nothing."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from math import inf
from typing import Protocol

from simlora.core.adapter import Adapter
from simlora.core.request import Request
from simlora.engine.clock import Clock
from simlora.engine.replica.admission import Admission
from simlora.engine.replica.model_runner import ModelRunner, Pass
from simlora.engine.replica.request_table import RequestStatus, RequestTable
from simlora.engine.replica.running_batch import distinct_adapters
from simlora.engine.replica_config import ReplicaConfig
from simlora.policies.scheduling.base import Scheduler


class Trials(Protocol):
    """Starts a trial beside all admitted requests, or beside some of them only."""

    def __call__(self, beside: Collection[Request] | None = None) -> Admission: ...


class SchedulerView:
    """A replica at an iteration boundary. The replica counts `iterations` and steps, and says when it `preempted`.

    `members` is the running batch, in the order in which requests joined it; `paused` has those taken out of it with
    their KV in HBM, in the order in which they were paused. `trial` starts a trial beside all admitted requests, or
    beside some of them only, as if the others, which are paused or will be, had given up their memory.
    """

    __slots__ = (
        "_clock",
        "_runner",
        "_scheduler",
        "_table",
        "_ttft_targets_s",
        "iterations",
        "max_num_seqs",
        "max_wait_tokens",
        "members",
        "paused",
        "preempted",
        "served_adapters",
        "steps_since_prefill",
        "trial",
        "waiting",
    )

    def __init__(
        self,
        clock: Clock,
        config: ReplicaConfig,
        scheduler: Scheduler,
        table: RequestTable,
        runner: ModelRunner,
        trials: Trials,
        served_adapters: int,
        ttft_targets_s: list[float] | None = None,
    ) -> None:
        self._clock, self._scheduler, self._table, self._runner = clock, scheduler, table, runner
        self.trial, self._ttft_targets_s = trials, ttft_targets_s
        self.waiting = table.queue
        self.members: Collection[Request] = table.batch.members.values()
        self.paused: Collection[Request] = table.held[RequestStatus.PAUSED].values()
        self.max_wait_tokens, self.max_num_seqs = config.max_wait_tokens, config.max_num_seqs
        self.served_adapters = served_adapters
        self.iterations = self.steps_since_prefill = 0
        self.preempted = False

    def add_adapter(self) -> None:
        """A further adapter is served, with the first-token target of the base model."""
        self.served_adapters += 1
        if self._ttft_targets_s is not None:
            self._ttft_targets_s.insert(len(self._ttft_targets_s) - 1, self._ttft_targets_s[-1])

    @property
    def scheduler_name(self) -> str:
        """The scheduler's class, for messages."""
        return type(self._scheduler).__name__

    @property
    def now_s(self) -> float:
        """The time."""
        return self._clock.now

    def due_s(self, request: Request) -> float:
        """Return when a request is to have its first token: inf where no target says so."""
        if self._ttft_targets_s is None:
            return inf
        return request.arrival_s + self._ttft_targets_s[request.adapter_id]

    @property
    def running(self) -> int:
        """The number of requests in the running batch."""
        return len(self.members)

    @property
    def step_tokens(self) -> int:
        """The tokens that the running batch has in an iteration."""
        return self._runner.step_tokens(self._table.batch)

    @property
    def prefilling(self) -> Sequence[Request]:
        """Admitted requests of which a part is prefilled, in the order of their admission."""
        return tuple(self._table.held[RequestStatus.PREFILLING].values())

    @property
    def loading(self) -> int:
        """Admitted requests that wait for their weights, or for KV from another replica, and do not run yet."""
        held = self._table.held
        return sum(
            len(held[status])
            for status in (RequestStatus.LOADING_ADAPTER, RequestStatus.ASSISTED, RequestStatus.RECEIVING)
        )

    @property
    def adapters(self) -> int:
        """Distinct adapters that admitted requests use."""
        return len(self._table.kv.adapters.pins)

    @property
    def merged(self) -> Adapter | None:
        """The adapter that is merged into the weights."""
        return self._runner.merged

    def in_use(self, adapter: Adapter) -> bool:
        """Return whether an admitted request uses the adapter."""
        return self._table.kv.adapters.is_pinned(adapter)

    def uses(self, adapter: Adapter) -> int:
        """Return how many requests have been admitted with an adapter."""
        return self._table.kv.adapters.requests(adapter.id)

    def last_use_s(self, adapter: Adapter) -> float:
        """Return when the last of them was gone: now while one is there, -inf before the first."""
        cache = self._table.kv.adapters
        return self._clock.now if cache.is_pinned(adapter) else cache.last_use_s(adapter.id)

    def resident(self, adapter: Adapter) -> bool:
        """Return whether an adapter is in HBM, or on its way."""
        return adapter in self._table.kv.adapters

    def upcoming(self) -> Iterable[Request]:
        """Return the waiting requests, in the order in which the scheduler would start them."""
        return self._scheduler.order(self)

    def pass_s(self, requests: Sequence[Request], chunks: Sequence[int]) -> float:
        """Return the seconds of a pass that prefills so many tokens of each request and decodes the running batch.

        Without what the requests wait for before it begins, and without the time of looking at others.
        """
        runner, table = self._runner, self._table
        decoding = table.batch if table.batch.members else None
        adapters = distinct_adapters(requests) if decoding is None else table.adapters_with(requests)
        host_s = runner.latency.host_s(0, adapters) if runner.adds_host else 0.0
        return runner.priced_s(Pass(requests, chunks, decoding, host_s, adapters))
