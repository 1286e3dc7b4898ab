"""What policies see of a replica: the view of `policies/views.py`, which shows and changes nothing."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from math import inf

from simlora.core.adapter import Adapter
from simlora.core.request import Request
from simlora.engine.admission import Admission
from simlora.engine.batch import Batch
from simlora.engine.clock import Clock
from simlora.engine.holdings import Holdings
from simlora.engine.pace import Pace
from simlora.engine.replica_config import ReplicaConfig
from simlora.engine.standing import Standing
from simlora.engine.waiting import WaitingQueue
from simlora.policies.scheduling.base import Scheduler


class Sight:
    """A replica at an iteration boundary; the replica counts its `iterations`, its steps, and says when it preempts."""

    __slots__ = (
        "_batch",
        "_clock",
        "_config",
        "_holdings",
        "_pace",
        "_scheduler",
        "_standing",
        "_ttft_targets_s",
        "iterations",
        "max_num_seqs",
        "max_wait_tokens",
        "preempted",
        "served_adapters",
        "steps_since_prefill",
        "waiting",
    )

    def __init__(
        self,
        clock: Clock,
        config: ReplicaConfig,
        scheduler: Scheduler,
        waiting: WaitingQueue,
        batch: Batch,
        standing: Standing,
        holdings: Holdings,
        pace: Pace,
        served_adapters: int,
        ttft_targets_s: Sequence[float] | None = None,
    ) -> None:
        self._clock, self._config, self._scheduler = clock, config, scheduler
        self._batch, self._standing, self._holdings, self._pace = batch, standing, holdings, pace
        self.waiting = waiting
        self.max_wait_tokens, self.max_num_seqs = config.max_wait_tokens, config.max_num_seqs
        self.served_adapters = served_adapters
        self._ttft_targets_s = ttft_targets_s
        self.iterations = self.steps_since_prefill = 0
        self.preempted = False

    @property
    def now_s(self) -> float:
        """The time."""
        return self._clock.now

    def due_s(self, request: Request) -> float:
        """When a request is to have its first token: inf where no target says so."""
        if self._ttft_targets_s is None:
            return inf
        return request.arrival_s + self._ttft_targets_s[request.adapter_id]

    @property
    def running(self) -> int:
        """Requests in the running batch."""
        return len(self._batch.members)

    @property
    def members(self) -> Collection[Request]:
        """The running batch, in the order in which they joined it."""
        return self._batch.members.values()

    @property
    def paused(self) -> Collection[Request]:
        """Requests taken out of the batch with their KV in HBM, in the order in which they were paused."""
        return self._standing.paused.values()

    @property
    def prefilling(self) -> Sequence[Request]:
        """Admitted requests of which a part is prefilled, in the order of their admission."""
        return tuple(self._standing.prefilling.values())

    @property
    def loading(self) -> int:
        """Admitted requests whose weights are on their way, and which do not run yet."""
        return len(self._standing.landing) + len(self._standing.late)

    @property
    def adapters(self) -> int:
        """Distinct adapters that requests of the batch use, or admitted ones that stand still."""
        return self._holdings.pool.pinned

    @property
    def merged(self) -> Adapter | None:
        """The adapter that is merged into the weights."""
        return self._pace.merged

    def in_use(self, adapter: Adapter) -> bool:
        """Whether an admitted request uses the adapter: one that runs, lands, is being prefilled or is paused."""
        return self._holdings.pool.is_pinned(adapter)

    def resident(self, adapter: Adapter) -> bool:
        """Whether an adapter is in HBM, or on its way."""
        return adapter in self._holdings.pool

    def upcoming(self) -> Iterable[Request]:
        """The waiting requests, in the order in which the scheduler would start them."""
        return self._scheduler.order(self)

    def pass_s(self, requests: Sequence[Request], chunks: Sequence[int]) -> float:
        """Seconds of one pass that prefills so many tokens of each of these, and decodes with the running batch.

        Without what they wait for before it begins, and what the scheduler takes that looks at others.
        """
        pool = self._holdings.pool
        new = {r.adapter.id for r in requests if r.adapter is not None and not pool.is_pinned(r.adapter)}
        batch = self._batch if self._batch.members else None
        return self._pace.prefill_s(requests, chunks, batch, 0, pool.pinned + len(new))

    def trial(self, beside: Collection[Request] | None = None) -> Admission:
        """Start a trial beside all admitted requests, or beside these of them only.

        As if the others, who are paused or will be, had given up their memory.
        """
        standing, holdings, batch = self._standing, self._holdings, self._batch
        seats = self.max_num_seqs - len(standing.prefilling)
        if standing.lands_s != inf:
            seats -= self.loading
        still_tokens = holdings.still_tokens
        if beside is None:
            seats -= len(batch.members)
        else:
            seats -= len(beside)
            stay = {request.id for request in beside}
            gone = (id for id in (*batch.members, *standing.paused) if id not in stay)
            still_tokens -= sum(holdings.own_tokens(id, batch.step) for id in gone)
            beside = (*beside, *standing.growing())
        return Admission(
            holdings.reservation,
            holdings.pool,
            seats,
            self._config,
            batch,
            holdings.prefixes,
            still_tokens,
            beside,
        )
