"""Route to the replica that the request slows down least, given how the LoRA kernel's cost depends on ranks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import repeat
from operator import add
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simlora.core.checks import number
from simlora.core.request import Request
from simlora.latency.iteration import IterationModel
from simlora.latency.kernels import LoraWork, priced
from simlora.latency.mixed import MixedKernels
from simlora.policies.routing.base import Router
from simlora.policies.views import SUMS, ClusterView, LoadView, amounts

Seconds = NDArray[np.float64]
Price = Callable[[LoraWork], Any]
FEW = 6
"""Up to this many replicas, plain numbers one by one are faster than arrays; with four, twice as fast."""


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

    informed = True

    def __init__(
        self, slo_s: float | None = None, penalty_s: float = 1.0, mean_output_tokens: float | None = None
    ) -> None:
        self.slo_s = None if slo_s is None else number("router.slo_s", slo_s, "seconds", above=0)
        self.penalty_s = number("router.penalty_s", penalty_s, "seconds", least=0)
        if mean_output_tokens is not None:
            number("router.mean_output_tokens", mean_output_tokens, "tokens", least=1)
        self.mean_output_tokens = mean_output_tokens
        self._declared = self._seen = 0

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
        if len(view.kv_token_budgets) > FEW or isinstance(view.kernel, MixedKernels):
            return self.at_once(request, view, mean_tokens)
        return np.array(list(self.one_by_one(request, view, mean_tokens)))

    def at_once(self, request: Request, view: ClusterView, mean_tokens: float) -> Seconds:
        """Return the costs of all replicas, from arrays `[2, replicas]` of the loads without and with the request."""
        every, waiting, iteration, kernel = view.loads.all, view.loads.waiting, view.iteration, view.kernel
        more = np.array(((0,) * len(SUMS), amounts(request)))[:, None]
        squared, rank = np.array(((0,), (request.prompt_tokens**2,))), np.array(((0,), (request.rank,)))
        sums, ranks = (waiting.sums + more).transpose(2, 0, 1), np.maximum(waiting.max_rank, rank)
        before_s, after_s = _prefill_s(iteration, partial(priced, kernel.prefill_s), sums, ranks, squared)
        sums, ranks, adapters = (every.sums + more).transpose(2, 0, 1), np.maximum(every.max_rank, rank), None
        if kernel.counts_adapters:
            adapters = np.array((every.adapters, every.adapters + _lacks(every, request)))
        price = partial(priced, kernel.decode_s)
        now_s, step_s = _decode_s(iteration, price, sums, ranks, adapters, mean_tokens)
        found: Seconds = self._cost(before_s, after_s, now_s, step_s, mean_tokens) * every.sums[:, 0]
        return found

    def one_by_one(self, request: Request, view: ClusterView, mean_tokens: float) -> Iterator[float]:
        """Yield the cost of each replica, from plain numbers."""
        every, waiting, iteration, kernel = view.loads.all, view.loads.waiting, view.iteration, view.kernel
        more, rank, squared = amounts(request), request.rank, request.prompt_tokens**2
        adapters = with_it = repeat(None)
        if kernel.counts_adapters:
            adapters, with_it = every.adapters.tolist(), (every.adapters + _lacks(every, request)).tolist()
        loads = (load.tolist() for load in (every.sums, every.max_rank, waiting.sums, waiting.max_rank))
        for now, highest, queue, queued, ids, ids_then in zip(*loads, adapters, with_it, strict=False):
            if not now[0]:
                yield 0.0
                continue
            before_s = _prefill_s(iteration, kernel.prefill_s, queue, queued, 0) if queue[0] else 0.0
            after = map(add, queue, more)
            after_s = _prefill_s(iteration, kernel.prefill_s, after, max(queued, rank), squared)
            now_s = _decode_s(iteration, kernel.decode_s, now, highest, ids, mean_tokens)
            then = map(add, now, more)
            step_s = _decode_s(iteration, kernel.decode_s, then, max(highest, rank), ids_then, mean_tokens)
            yield self._cost(before_s, after_s, now_s, step_s, mean_tokens) * now[0]

    def _cost(self, before_s: Any, after_s: Any, now_s: Any, step_s: Any, mean_tokens: float) -> Any:
        """Return what a request costs each request of a replica, as numbers or arrays."""
        cost = (after_s - before_s) / mean_tokens + (step_s - now_s)
        if self.slo_s is not None:
            cost += self.penalty_s * (step_s > self.slo_s)
        return cost


def _prefill_s(iteration: IterationModel, price: Price, sums: Any, max_rank: Any, squared: Any) -> Any:
    """Return the seconds to prefill a queue at once, for numbers or arrays; 0 for an empty queue.

    `squared` is the new request's prompt squared. Those of waiting requests are in both compared terms and cancel out.
    """
    requests, tokens, lora, lora_tokens, _, token_rank_sum = sums
    lora_s = price(LoraWork(lora_tokens, token_rank_sum, max_rank, lora, lora))
    return iteration.prefill_s(tokens, squared) * (requests > 0) + lora_s


def _decode_s(
    iteration: IterationModel, price: Price, sums: Any, max_rank: Any, adapters: Any, mean_tokens: float
) -> Any:
    """Return the seconds of a decode step of all requests, for numbers or arrays; `adapters` None: one per request."""
    requests, prompts, lora, _, rank_sum, _ = sums
    work = LoraWork(lora, rank_sum, max_rank, lora if adapters is None else adapters, lora)
    return iteration.decode_s(requests, prompts + requests * (mean_tokens / 2)) + price(work)


def _lacks(load: LoadView, request: Request) -> NDArray[np.bool_]:
    """Return which replicas have no request for this request's adapter `[replicas]`; all False for the base model."""
    if request.adapter is None:
        return np.zeros(len(load.adapters), dtype=np.bool_)
    return ~load.uses(request.adapter.id)
