"""Replicas of two pools, one that prefills and one that decodes, that help each other out."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from simlora.core.arrays import Ints
from simlora.core.request import Request
from simlora.engine.cluster.fleet import Ids


class MixedPool:
    """Says which replicas may prefill or decode a request when those of its own pool are full.

    A replica that prefills is full when it has prompts to compute and would have more than `most_prompt_tokens` with
    the next; one that decodes, when its requests and the next would need all of its pool, by declared lengths. Then the
    request may go to replicas that are mixed, which have requests of the other pool, and are not full; else to all of
    the other pool, of which the chosen one is mixed from now on; and if all of these are mixed, to any. A replica is
    mixed until it has no request of the other pool. The first `prefill_replicas` are those that prefill. Replicas whose
    limits do not admit the request are left out before, unless none admits it.

    Source: Splitwise (ISCA'24) §4.1, and its simulator (github.com/Mutinifni/splitwise-sim, scheduler.py,
    MixedPoolScheduler), with 8,192 tokens. Differs: the router chooses among the replicas, of which Splitwise takes the
    one with the least to do; and a replica that decodes is chosen once the prompt is, or is about to be, computed.
    """

    def __init__(self, prefill_replicas: int, most_prompt_tokens: int, budgets: list[int]) -> None:
        self._first, self._most_prompt_tokens = prefill_replicas, most_prompt_tokens
        self._budgets: Ints = np.array(budgets, dtype=np.int64)
        self._prompt_tokens: Ints = np.zeros(len(budgets), dtype=np.int64)  # to be computed
        self._kv_tokens: Ints = np.zeros(len(budgets), dtype=np.int64)  # that requests need, or will
        self._foreign: Ints = np.zeros(len(budgets), dtype=np.int64)  # requests of the other pool
        self._prefilled_by: dict[int, int] = {}  # by request
        self._counted: dict[
            tuple[int, int], tuple[int, int, int]
        ] = {}  # by replica and request: of these three

    @property
    def counts(self) -> Ints:
        """Tokens of prompts, of KV, and requests of the other pool, of each replica `[3, replicas]`."""
        return np.stack((self._prompt_tokens, self._kv_tokens, self._foreign))

    def among(self, replicas: Ids, request: Request, decodes: bool) -> Ids:
        """Return those of some replicas that may prefill a request, or decode it."""
        own, mixed = (replicas >= self._first) == decodes, self._foreign[replicas] > 0
        open_ = self._open(replicas, request, decodes)
        for some in (own & ~mixed & open_, mixed & open_, ~own & ~mixed):
            if some.any():
                return replicas[some]
        return replicas

    def _open(self, replicas: Ids, request: Request, decodes: bool) -> NDArray[np.bool_]:
        """Return which of some replicas have room for a request `[replicas]`."""
        if decodes:
            free: Ids = self._budgets[replicas] - self._kv_tokens[replicas]
            free[replicas == self._prefilled_by.get(request.id, -1)] += (
                request.prompt_tokens
            )  # which are there
            fits: NDArray[np.bool_] = free > request.prompt_tokens + request.max_output_tokens
            return fits
        tokens = self._prompt_tokens[replicas]
        few: NDArray[np.bool_] = (tokens == 0) | (tokens + request.prompt_tokens <= self._most_prompt_tokens)
        return few

    def enter(self, replica: int, request: Request, decodes: bool) -> None:
        """A replica gets a request, to prefill or to decode it."""
        prompt_tokens = request.prompt_tokens
        foreign = int((replica >= self._first) != decodes)
        if decodes:
            self._count(replica, request, 0, prompt_tokens + request.max_output_tokens, foreign)
        else:
            self._prefilled_by[request.id] = replica
            self._count(replica, request, prompt_tokens, prompt_tokens, foreign)

    def _count(
        self, replica: int, request: Request, prompt_tokens: int, kv_tokens: int, foreign: int
    ) -> None:
        assert (replica, request.id) not in self._counted, f"replica {replica} has request {request.id} twice"
        self._counted[replica, request.id] = prompt_tokens, kv_tokens, foreign
        self._prompt_tokens[replica] += prompt_tokens
        self._kv_tokens[replica] += kv_tokens
        self._foreign[replica] += foreign

    def leave(self, replica: int, request: Request) -> None:
        """A replica no longer has a request: it has ended, or goes on elsewhere."""
        prompt_tokens, kv_tokens, foreign = self._counted.pop((replica, request.id))
        if prompt_tokens:
            del self._prefilled_by[request.id]
        self._prompt_tokens[replica] -= prompt_tokens
        self._kv_tokens[replica] -= kv_tokens
        self._foreign[replica] -= foreign
