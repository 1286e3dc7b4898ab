"""What `scored` looks at before it scores: which replicas a request may go to, if there is a choice."""

from __future__ import annotations

from collections.abc import Callable
from math import sqrt
from typing import Final

import numpy as np
from numpy.typing import NDArray

from simlora.core.checks import GivenFloat, GivenInt, number, whole
from simlora.core.errors import not_defined
from simlora.core.request import Request
from simlora.policies.routing.scorers import Ids, in_flight, kv_usage, waiting
from simlora.policies.views import ClusterView

Mask = NDArray[np.bool_]


class Filter:
    """Keeps some of the replicas; one instance a router."""

    def keeps(self, request: Request, candidates: Ids, view: ClusterView) -> Mask:
        """Return whether each candidate is kept `[candidates]`; if none is, all are."""
        raise not_defined(self, "keeps")


class LoraResidency(Filter):
    """Keeps the homes of an adapter, the replicas that have it in HBM or in flight to it, until all are saturated.

    Then the others that are not saturated are kept, unless there is none or the adapter has `most_homes` (0: no limit).
    A replica is saturated with more than `queue` waiting requests, or more than a part `kv_cache` of its pool in use; 0
    disables either check. An adapter without a home may go anywhere.
    Source: llm-d's lora-residency-filter. It prefers replicas with the adapter in host memory to others, and all of
    simlora's have it there. With both checks disabled it is Dynamo's filter of loaded workers, without its controller.
    """

    def __init__(self, most_homes: GivenInt = 0, queue: GivenInt = 8, kv_cache: GivenFloat = 0.8) -> None:
        key = "router.filters.lora_residency."
        self.most_homes = whole(f"{key}most_homes", most_homes, "replicas", least=0)
        self.queue = whole(f"{key}queue", queue, "requests", least=0)
        self.kv_cache = number(f"{key}kv_cache", kv_cache, least=0, most=1)

    def keeps(self, request: Request, candidates: Ids, view: ClusterView) -> Mask:
        if request.adapter is None:
            return np.ones(len(candidates), dtype=np.bool_)
        homes: Mask = view.resident(request.adapter)[candidates]
        saturated = np.zeros(len(candidates), dtype=np.bool_)
        if self.queue:
            saturated |= waiting(candidates, view) > self.queue
        if self.kv_cache:
            saturated |= kv_usage(candidates, view) > self.kv_cache
        if not (saturated | ~homes).all() or (self.most_homes and int(homes.sum()) >= self.most_homes):
            return homes
        others = ~homes & ~saturated
        return others if homes.any() and others.any() else homes


class Balanced(Filter):
    """Keeps replicas with at most the mean and so many sample `deviations` of the requests in flight.

    If the most are more than `gap` above the fewest, only those with the fewest are kept.
    Source: AIBrix's prefix-cache. Its code has the defaults 8 and 1, its documentation 16 and 2.
    """

    def __init__(self, gap: GivenInt = 8, deviations: GivenFloat = 1.0) -> None:
        self.gap = whole("router.filters.balanced.gap", gap, "requests", least=0)
        self.deviations = number("router.filters.balanced.deviations", deviations, least=0)

    def keeps(self, request: Request, candidates: Ids, view: ClusterView) -> Mask:
        counts = in_flight(candidates, view)
        least = int(counts.min())
        if int(counts.max()) - least > self.gap:
            fewest: Mask = counts == least
            return fewest
        mean = int(counts.sum()) / len(counts)
        squares = sum((count - mean) ** 2 for count in counts.tolist())
        kept: Mask = counts <= mean + self.deviations * sqrt(squares / max(len(counts) - 1, 1))
        return kept


FILTERS: Final[dict[str, Callable[..., Filter]]] = {"lora_residency": LoraResidency, "balanced": Balanced}
