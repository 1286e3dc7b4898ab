"""The replica that a request slows down least, as far as its LoRA kernel's cost depends on ranks."""

from __future__ import annotations

from typing import cast

import numpy as np
from numpy.typing import NDArray

from simlora.core.checks import number
from simlora.core.request import Request
from simlora.latency.kernels import LoraWork, priced
from simlora.policies.routing.base import Router
from simlora.policies.views import SUMS, ClusterView, LoadView, amounts

Amounts = NDArray[np.int64]
Seconds = NDArray[np.float64]


class RankAware(Router):
    """CaraServe's and Toppings' router: all replicas are priced at once, with the latency models of the run.

    Of a replica with running and queued requests, the cost of a further one is what the prefill of its queue takes
    longer, over the mean output, plus what a decode step of all of them takes longer, plus `penalty_s` if that
    step takes longer than `slo_s`; times the requests that are there. The least cost wins, of equals the lowest id.
    Replicas without memory for the prompt and the declared output are asked only if no other is left.
    `mean_output_tokens` None: the mean of the outputs that were declared so far.
    Source: CaraServe (arXiv 2401.11240) §5, Algorithm 1. Contexts are not in their model; here those that run or
    wait count with their prompts and half the mean output. Every request of a queue counts as an adapter of its own.
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
        need = request.prompt_tokens + request.max_output_tokens
        if room.min() < need <= room.max():
            costs[room < need] = np.inf
        return int(candidates[costs.argmin()])

    def costs(self, request: Request, view: ClusterView, mean_tokens: float) -> Seconds:
        """Return the total cost of every replica [replicas]."""
        every, more = view.loads.all, _More(request)
        before_s, after_s = self._prefill_s(more, view)
        now_s, step_s = self._decode_s(more, view, mean_tokens)
        cost = (after_s - before_s) / mean_tokens + (step_s - now_s)
        if self.slo_s is not None:
            cost += self.penalty_s * (step_s > self.slo_s)
        found: Seconds = cost * every.sums[:, 0]
        return found

    def _prefill_s(self, more: _More, view: ClusterView) -> Seconds:
        """Seconds to prefill the queues at once, as they are and with the request [2, replicas]; 0 for none."""
        (requests, tokens, lora, lora_tokens, _, token_rank_sum), max_rank = more.beside(view.loads.waiting)
        # The squares of those that wait are in both, and cancel out.
        base_s = np.asarray(view.iteration.prefill_s(_as_int(tokens), _as_int(more.squared)))
        lora_s = priced(view.kernel.prefill_s, _work(lora_tokens, token_rank_sum, max_rank, lora, lora))
        found: Seconds = base_s * (requests > 0) + lora_s
        return found

    def _decode_s(self, more: _More, view: ClusterView, mean_tokens: float) -> Seconds:
        """Seconds of a decode step of all requests, as they are and with the request [2, replicas].

        Without any it is that of an empty batch; such a replica costs nothing whatever it says.
        """
        every = view.loads.all
        (requests, prompts, lora, _, rank_sum, _), max_rank = more.beside(every)
        contexts = prompts + requests * (mean_tokens / 2)
        base_s = np.asarray(view.iteration.decode_s(_as_int(requests), _as_int(contexts)))
        adapters = lora
        if view.kernel.counts_adapters:
            adapters = np.array((every.adapters, every.adapters))
            if more.request.adapter is not None:
                adapters[1] += ~every.uses(more.request.adapter.id)
        found: Seconds = base_s + priced(
            view.kernel.decode_s, _work(lora, rank_sum, max_rank, adapters, lora)
        )
        return found


class _More:
    """Nothing more, and one request more: what is added to the sums, the highest rank and the squares [2, 1, …]."""

    __slots__ = ("rank", "request", "squared", "sums")

    def __init__(self, request: Request) -> None:
        self.request = request
        self.sums = np.zeros((2, 1, len(SUMS)), dtype=np.int64)
        self.sums[1, 0] = amounts(request)
        self.rank = np.array(((0,), (request.rank,)), dtype=np.int64)
        self.squared = np.array(((0,), (request.prompt_tokens**2,)), dtype=np.int64)

    def beside(self, load: LoadView) -> tuple[Amounts, Amounts]:
        """Return sums [sums, 2, replicas] and highest ranks [2, replicas], of a load as it is and with the request."""
        return (load.sums + self.sums).transpose(2, 0, 1), np.maximum(load.max_rank, self.rank)


def _work(
    tokens: Amounts, token_rank_sum: Amounts, max_rank: Amounts, adapters: Amounts, segments: Amounts
) -> LoraWork:
    """The latency models are arithmetic, and take arrays for numbers."""
    return LoraWork(tokens, token_rank_sum, max_rank, adapters, segments)  # type: ignore[arg-type]


def _as_int(amounts: Amounts | Seconds) -> int:
    return cast(int, amounts)
