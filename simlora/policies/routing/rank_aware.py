"""Route to the replica that the request slows down least, given how the LoRA kernel's cost depends on ranks."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import inf
from typing import Any, ClassVar

import numpy as np
from mypy_extensions import mypyc_attr
from numpy.typing import NDArray

from simlora.core.build import BUILD
from simlora.core.checks import GivenFloat, number
from simlora.core.request import Request
from simlora.latency.iteration import IterationModel
from simlora.latency.kernels import Kernel, LoraWork, priced
from simlora.policies.routing.base import Router
from simlora.policies.views import SUMS, ClusterView, LoadView, amounts

Seconds = NDArray[np.float64]
Price = Callable[[LoraWork], Any]
FEW = 6
"""Up to this many replicas, plain numbers are faster than arrays; with four, twice as fast. Compiled, always."""


@mypyc_attr(allow_interpreted_subclasses=True)
class RankAware(Router):
    """CaraServe's and Toppings' router: replicas are priced with the latency models of the run.

    The cost of a request on a replica is the increase of its queue's prefill time over the mean output, plus the
    increase of a decode step of all its requests, plus `penalty_s` if that step exceeds `slo_s`; all times the number
    of its requests. The lowest cost wins, of equals the lowest id. Replicas without memory for the prompt and the
    declared output are considered only if no other is left. `mean_output_tokens` None: the mean output declared so far.
    Source: CaraServe (arXiv 2401.11240) §5, Algorithm 1. Differs: their model has no contexts; here running and
    waiting requests count with their prompts and half the mean output. Every request of a queue counts as an adapter
    of its own.
    """

    informed: ClassVar[bool] = True

    def __init__(
        self,
        slo_s: GivenFloat | None = None,
        penalty_s: GivenFloat = 1.0,
        mean_output_tokens: GivenFloat | None = None,
    ) -> None:
        self.slo_s = None if slo_s is None else number("router.slo_s", slo_s, "seconds", above=0)
        self.penalty_s = number("router.penalty_s", penalty_s, "seconds", least=0)
        self.mean_output_tokens: float | None = None
        if mean_output_tokens is not None:
            self.mean_output_tokens = number(
                "router.mean_output_tokens", mean_output_tokens, "tokens", least=1
            )
        self._declared = self._seen = 0
        self._known: list[_Known] = []  # of each replica

    def route(self, request: Request, candidates: NDArray[np.int64], view: ClusterView) -> int:
        self._declared += request.max_output_tokens
        self._seen += 1
        costs = self.costs(request, view, self.mean_output_tokens or self._declared / self._seen)
        room = view.kv_token_budgets - view.loads.held_tokens
        if len(candidates) < len(costs):
            costs, room = costs[candidates], room[candidates]
        full = room < request.declared_tokens
        if 0 < np.count_nonzero(full) < len(full):
            costs[full] = np.inf
        return int(candidates[costs.argmin()])

    def costs(self, request: Request, view: ClusterView, mean_tokens: float) -> Seconds:
        """Return the total cost of every replica `[replicas]`. Both ways give identical bits."""
        models = view.models
        if len(models) > FEW and BUILD == "interpreted" and all(each == models[0] for each in models):
            return self.at_once(request, view, mean_tokens)
        return np.array(self.one_by_one(request, view, mean_tokens))

    def at_once(self, request: Request, view: ClusterView, mean_tokens: float) -> Seconds:
        """Return the costs of replicas that are alike, from arrays `[2, replicas]` without and with the request.

        Compiled latency models take no arrays.
        """
        every, waiting = view.loads.all, view.loads.waiting
        iteration, kernel = view.models[0]
        more = np.array(((0,) * len(SUMS), amounts(request)))[:, None]
        squared, rank = np.array(((0,), (request.prompt_tokens**2,))), np.array(((0,), (request.rank,)))
        sums, ranks = (waiting.sums + more).transpose(2, 0, 1), np.maximum(waiting.max_rank, rank)
        before_s, after_s = _prefills_s(iteration, partial(priced, kernel.prefill_s), sums, ranks, squared)
        sums, ranks, adapters = (every.sums + more).transpose(2, 0, 1), np.maximum(every.max_rank, rank), None
        if kernel.counts_adapters:
            adapters = np.array((every.adapters, every.adapters + _lacks(every, request)))
        price = partial(priced, kernel.decode_s)
        now_s, step_s = _decodes_s(iteration, price, sums, ranks, adapters, mean_tokens)
        cost = (after_s - before_s) / mean_tokens + (step_s - now_s)
        if self.slo_s is not None:
            cost += self.penalty_s * (step_s > self.slo_s)
        found: Seconds = cost * every.sums[:, 0]
        return found

    def one_by_one(self, request: Request, view: ClusterView, mean_tokens: float) -> list[float]:
        """Return the cost of each replica, from plain numbers; what a replica's load alone decides is kept."""
        every, waiting, models = view.loads.all, view.loads.waiting, view.models
        marks, queue_marks, known = every.marks, waiting.marks, self._known
        if len(known) != len(models):
            known = self._known = [_Known() for _ in models]
        _, prompt, lora, lora_prompt, rank, token_rank = amounts(request)
        squared, half, slo_s = prompt * prompt, mean_tokens / 2, inf if self.slo_s is None else self.slo_s
        new: list[bool] = []
        if models[0][1].counts_adapters:  # and so does the same kernel on another GPU
            new = _lacks(every, request).tolist()
        found: list[float] = []
        for replica, each in enumerate(known):
            if each.mark is not marks[replica] or each.queue_mark is not queue_marks[replica]:
                each.look(every, waiting, replica, models[replica], bool(new))
            requests = each.requests
            if not requests:
                found.append(0.0)
                continue
            iteration, kernel = models[replica]
            work = LoraWork(
                each.queue_lora_tokens + lora_prompt,
                each.queue_token_ranks + token_rank,
                max(each.queue_highest, rank),
                each.queue_lora + lora,
                each.queue_lora + lora,
            )
            after_s = iteration.prefill_s(each.queue_tokens + prompt, squared) + kernel.prefill_s(work)
            now_s = iteration.decode_s(requests, each.prompts + requests * half) + each.lora_s
            then = each.lora + lora
            adapters = each.adapters + new[replica] if new else then
            work = LoraWork(then, each.ranks + rank, max(each.highest, rank), adapters, then)
            context_tokens = each.prompts + prompt + (requests + 1) * half
            step_s = iteration.decode_s(requests + 1, context_tokens) + kernel.decode_s(work)
            cost = (after_s - each.before_s) / mean_tokens + (step_s - now_s)
            if step_s > slo_s:
                cost += self.penalty_s
            found.append(cost * requests)
        return found


class _Known:
    """A replica's load and what follows from it alone; `mark` and `queue_mark` are those of the load it was taken from.

    `before_s`: the seconds to prefill its queue at once, the squared prompts left out, which are in both terms that are
    compared. `lora_s`: what LoRA adds to a decode step of all its requests.
    """

    __slots__ = (
        "adapters",
        "before_s",
        "highest",
        "lora",
        "lora_s",
        "mark",
        "prompts",
        "queue_highest",
        "queue_lora",
        "queue_lora_tokens",
        "queue_mark",
        "queue_token_ranks",
        "queue_tokens",
        "ranks",
        "requests",
    )

    def __init__(self) -> None:
        self.mark: object = None
        self.queue_mark: object = None
        self.requests = self.prompts = self.lora = self.ranks = self.highest = self.adapters = 0
        self.queue_tokens = self.queue_lora = self.queue_lora_tokens = self.queue_token_ranks = 0
        self.queue_highest = 0
        self.before_s = self.lora_s = 0.0

    def look(
        self,
        every: LoadView,
        waiting: LoadView,
        replica: int,
        models: tuple[IterationModel, Kernel],
        counts: bool,
    ) -> None:
        """Take a replica's load as it is; the kernel `counts` distinct adapters."""
        self.mark, self.queue_mark = every.marks[replica], waiting.marks[replica]
        iteration, kernel = models
        self.requests, self.prompts, self.lora, _, self.ranks, _ = every.sums[replica].tolist()
        self.highest = int(every.max_rank[replica])
        self.adapters = int(every.adapters[replica]) if counts else self.lora
        work = LoraWork(self.lora, self.ranks, self.highest, self.adapters, self.lora)
        self.lora_s = kernel.decode_s(work)
        queue, tokens, lora, lora_tokens, _, token_ranks = waiting.sums[replica].tolist()
        self.queue_tokens, self.queue_lora, self.queue_lora_tokens = tokens, lora, lora_tokens
        self.queue_token_ranks, self.queue_highest = token_ranks, int(waiting.max_rank[replica])
        self.before_s = 0.0
        if queue:
            work = LoraWork(lora_tokens, token_ranks, self.queue_highest, lora, lora)
            self.before_s = iteration.prefill_s(tokens, 0) + kernel.prefill_s(work)


def _prefills_s(iteration: IterationModel, price: Price, sums: Any, max_rank: Any, squared: Any) -> Any:
    """Return the seconds to prefill queues at once; 0 for an empty one.

    `squared` is the new request's prompt squared. Those of waiting requests are in both compared terms and cancel out.
    """
    requests, tokens, lora, lora_tokens, _, token_rank_sum = sums
    lora_s = price(LoraWork(lora_tokens, token_rank_sum, max_rank, lora, lora))
    return iteration.prefill_s(tokens, squared) * (requests > 0) + lora_s


def _decodes_s(
    iteration: IterationModel, price: Price, sums: Any, max_rank: Any, adapters: Any, mean_tokens: float
) -> Any:
    """Return the seconds of a decode step of all requests; `adapters` None: one per request."""
    requests, prompts, lora, _, rank_sum, _ = sums
    work = LoraWork(lora, rank_sum, max_rank, lora if adapters is None else adapters, lora)
    return iteration.decode_s(requests, prompts + requests * (mean_tokens / 2)) + price(work)


def _lacks(load: LoadView, request: Request) -> NDArray[np.bool_]:
    """Return which replicas have no request for this request's adapter `[replicas]`; all False for the base model."""
    if request.adapter is None:
        return np.zeros(len(load.adapters), dtype=np.bool_)
    return ~load.uses(request.adapter.id)
