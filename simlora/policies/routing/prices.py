"""What a request would cost on a replica, by the latency models of the run, as rank_aware counts it."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

from simlora.core.request import Request
from simlora.latency.iteration import IterationModel
from simlora.latency.kernels import Kernel, LoraWork
from simlora.policies.loads import ReplicaLoad
from simlora.policies.views import ClusterView, LoadsView


class Newcomer:
    """A request that is to be routed; its `rank` is 0 for the base model, and `lora` says whether it has an adapter.

    `alone_s` are the seconds to prefill it with the models of the last replica that was asked and has no queue.
    """

    __slots__ = (
        "adapter_id",
        "alone_s",
        "kernel",
        "lora",
        "lora_tokens",
        "mean_tokens",
        "penalty_s",
        "prompt_tokens",
        "rank",
        "slo_s",
        "squared",
    )

    def __init__(self, request: Request, mean_tokens: float, slo_s: float | None, penalty_s: float) -> None:
        self.adapter_id, self.prompt_tokens, self.rank = (
            request.adapter_id,
            request.prompt_tokens,
            request.rank,
        )
        self.lora = 0 if request.adapter is None else 1
        self.lora_tokens = self.lora * request.prompt_tokens
        self.squared = request.prompt_tokens**2
        self.mean_tokens, self.penalty_s = mean_tokens, penalty_s
        self.slo_s = inf if slo_s is None else slo_s
        self.kernel: Kernel | None = None
        self.alone_s = 0.0


class ReplicaPrices:
    """The prices of requests on one replica; what its load alone decides is kept until that load changes.

    `before_s` are the seconds to prefill its queue at once, the squared prompts left out, which are in both terms that
    are compared. `lora_s` is what LoRA adds to a decode step of all its requests, and `_with_s` that with one more
    request, by rank and by whether the request's adapter is a further one.
    """

    __slots__ = (
        "_counts",
        "_iteration",
        "_kernel",
        "_queue_version",
        "_version",
        "_with_s",
        "before_s",
        "budget",
        "id",
        "load",
        "lora_s",
        "queue",
    )

    def __init__(
        self,
        id: int,
        models: tuple[IterationModel, Kernel],
        budget: int,
        load: ReplicaLoad,
        queue: ReplicaLoad,
    ) -> None:
        """`load` sums all requests of the replica, `queue` those that wait; its pool has `budget` slots."""
        self.id, self.budget, self.load, self.queue = id, budget, load, queue
        self._iteration, self._kernel = models
        self._counts: bool = self._kernel.counts_adapters
        self._version = self._queue_version = -1
        self._with_s: dict[int, float] = {}
        self.before_s = self.lora_s = 0.0

    def cost_s(self, new: Newcomer) -> float:
        """Return the seconds by which a request delays this replica's requests, all together."""
        load, queue, iteration = self.load, self.queue, self._iteration
        requests, half = load.requests, new.mean_tokens / 2
        if not requests:
            return 0.0
        if load.version != self._version:
            self._look()
        if queue.version != self._queue_version:
            self._look_at_queue()
        context_tokens = load.prompt_tokens + requests * half
        now_s = iteration.decode_s(requests, context_tokens) + self.lora_s
        context_tokens = load.prompt_tokens + new.prompt_tokens + (requests + 1) * half
        step_s = iteration.decode_s(requests + 1, context_tokens) + self._lora_with(new)
        cost_s = (self._after_s(new) - self.before_s) / new.mean_tokens + (step_s - now_s)
        if step_s > new.slo_s:
            cost_s += new.penalty_s
        return cost_s * requests

    def _look(self) -> None:
        load, self._version = self.load, self.load.version
        self._with_s.clear()
        adapters = load.adapters if self._counts else load.lora_requests
        self.lora_s = self._kernel.decode_s(
            LoraWork(load.lora_requests, load.rank_sum, load.max_rank, adapters, load.lora_requests)
        )

    def _look_at_queue(self) -> None:
        queue, self._queue_version = self.queue, self.queue.version
        lora = queue.lora_requests
        self.before_s = 0.0
        if queue.requests:
            work = LoraWork(queue.lora_tokens, queue.token_rank_sum, queue.max_rank, lora, lora)
            self.before_s = self._iteration.prefill_s(queue.prompt_tokens, 0) + self._kernel.prefill_s(work)

    def _lora_with(self, new: Newcomer) -> float:
        """Return what LoRA adds to a decode step of all requests and the new one."""
        load, rank = self.load, new.rank
        further = 0
        if self._counts and new.lora and new.adapter_id not in load.users:
            further = 1
        key = 4 * rank + 2 * new.lora + further
        known_s = self._with_s.get(key)
        if known_s is not None:
            return known_s
        then = load.lora_requests + new.lora
        adapters = load.adapters + further if self._counts else then
        work = LoraWork(then, load.rank_sum + rank, max(load.max_rank, rank), adapters, then)
        found_s = self._with_s[key] = self._kernel.decode_s(work)
        return found_s

    def _after_s(self, new: Newcomer) -> float:
        """Return the seconds to prefill the queue and the new request at once."""
        queue, kernel = self.queue, self._kernel
        if not queue.requests and new.kernel is kernel:
            return new.alone_s
        lora = queue.lora_requests + new.lora
        tokens, token_ranks = (
            queue.lora_tokens + new.lora_tokens,
            queue.token_rank_sum + new.lora_tokens * new.rank,
        )
        work = LoraWork(tokens, token_ranks, max(queue.max_rank, new.rank), lora, lora)
        after_s = self._iteration.prefill_s(queue.prompt_tokens + new.prompt_tokens, new.squared)
        after_s += kernel.prefill_s(work)
        if not queue.requests:
            new.kernel, new.alone_s = kernel, after_s
        return after_s


class Prices:
    """The prices on all replicas of the view that was looked at last; `alike`: all have the same latency models."""

    def __init__(self) -> None:
        self.alike = False
        self._models: Sequence[tuple[IterationModel, Kernel]] = ()
        self._loads: LoadsView | None = None
        self._replicas: list[ReplicaPrices] = []

    def of(self, view: ClusterView) -> list[ReplicaPrices]:
        """Return the prices on every replica."""
        models, loads = view.models, view.loads
        if models is not self._models or loads is not self._loads:
            self._models, self._loads = models, loads
            self.alike = all(each == models[0] for each in models)
            replicas = zip(
                models,
                view.kv_token_budgets.tolist(),
                loads.all.replicas,
                loads.waiting.replicas,
                strict=True,
            )
            self._replicas = [ReplicaPrices(id, *replica) for id, replica in enumerate(replicas)]
        return self._replicas

    def __deepcopy__(self, memo: dict[int, object]) -> Prices:
        """Return none: they belong to a view, which the copy of a router has not seen."""
        return Prices()
