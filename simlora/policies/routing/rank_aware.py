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
from simlora.latency.kernels import LoraWork, priced
from simlora.policies.loads import SUMS
from simlora.policies.routing.base import Router
from simlora.policies.routing.prices import Newcomer, Prices
from simlora.policies.views import ClusterView, LoadView

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
        self._prices = Prices()

    def route(self, request: Request, candidates: NDArray[np.int64], view: ClusterView) -> int:
        self._declared += request.max_output_tokens
        self._seen += 1
        mean_tokens = self.mean_output_tokens or self._declared / self._seen
        prices = self._prices.of(view)
        if self._prices.alike and BUILD == "interpreted" and len(prices) > FEW:
            return self._cheapest_at_once(request, candidates, view, mean_tokens)
        new = Newcomer(request, mean_tokens, self.slo_s, self.penalty_s)
        if len(candidates) < len(prices):
            prices = [prices[replica] for replica in candidates.tolist()]
        declared_tokens = request.declared_tokens
        roomy = full = -1
        least_s = least_full_s = inf
        for each in prices:
            cost_s = each.cost_s(new)
            if each.load.held_tokens + declared_tokens <= each.budget:
                if cost_s < least_s or roomy < 0:
                    roomy, least_s = each.id, cost_s
            elif cost_s < least_full_s or full < 0:
                full, least_full_s = each.id, cost_s
        return full if roomy < 0 else roomy

    def one_by_one(self, request: Request, view: ClusterView, mean_tokens: float) -> list[float]:
        """Return the cost of each replica, from plain numbers."""
        new = Newcomer(request, mean_tokens, self.slo_s, self.penalty_s)
        return [each.cost_s(new) for each in self._prices.of(view)]

    def at_once(self, request: Request, view: ClusterView, mean_tokens: float) -> Seconds:
        """Return the costs of replicas that are alike, from arrays `[2, replicas]` without and with the request.

        The bits are those of `one_by_one`. Compiled latency models take no arrays.
        """
        every, waiting = view.loads.all, view.loads.waiting
        iteration, kernel = view.models[0]
        more = np.array(((0,) * len(SUMS), _amounts(request)))[:, None]
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

    def _cheapest_at_once(
        self, request: Request, candidates: NDArray[np.int64], view: ClusterView, mean_tokens: float
    ) -> int:
        """Return what `route` does, from arrays."""
        costs_s = self.at_once(request, view, mean_tokens)
        room = view.kv_token_budgets - view.loads.held_tokens
        if len(candidates) < len(costs_s):
            costs_s, room = costs_s[candidates], room[candidates]
        full = room < request.declared_tokens
        if 0 < np.count_nonzero(full) < len(full):
            costs_s[full] = np.inf
        return int(candidates[costs_s.argmin()])


def _amounts(request: Request) -> tuple[int, ...]:
    """Return what a request adds to each of SUMS."""
    tokens = request.prompt_tokens
    if request.adapter is None:
        return 1, tokens, 0, 0, 0, 0
    rank = request.adapter.rank
    return 1, tokens, 1, tokens, rank, tokens * rank


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
