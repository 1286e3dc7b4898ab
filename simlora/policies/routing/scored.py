"""Route to the replica with the highest weighted sum of scores."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, TypeVar

import numpy as np
from mypy_extensions import mypyc_attr
from numpy.typing import NDArray

from simlora.core.checks import GivenFloat, choice, number
from simlora.core.errors import InputError
from simlora.core.request import Request
from simlora.policies.routing.base import Router
from simlora.policies.routing.filters import FILTERS
from simlora.policies.routing.scorers import SCORERS
from simlora.policies.views import ClusterView

Made = TypeVar("Made")


@mypyc_attr(allow_interpreted_subclasses=True)
class Scored(Router):
    """Filter, score and pick: the replica with the highest sum of weight * score, of equals a random one.

    `scorers` has a weight, or the `weight` and parameters, by name of SCORERS. `filters` has parameters by name of
    FILTERS; they are applied in order, and one that would leave no replica leaves all.

    Source: the scheduler of llm-d and of Gateway API's Inference Extension, whose filters, scorers and max-score-picker
    these are; AIBrix's weighted strategies, and the routings of vLLM's production stack and of Dynamo, each said as
    scorers (`conf/router`). Differs: of equals, AIBrix's least-kv-cache picks the last and the production stack the
    first. What a replica's metrics say is as old as `status_every_s` allows, the product's period of scrapes, or
    `cluster.status_every_s`; what the router counts itself is not, nor which KV and which adapters are in HBM, which
    the products learn from events or within a scrape.
    """

    informed: ClassVar[bool] = True

    def __init__(
        self,
        scorers: Mapping[str, Any] | None = None,
        filters: Mapping[str, Any] | None = None,
        status_every_s: GivenFloat | None = None,
    ) -> None:
        if status_every_s is not None:
            self.status_every_s = number("router.status_every_s", status_every_s, "seconds", above=0)
        given = {"in_flight": 1.0} if scorers is None else _mapping("router.scorers", scorers)
        self._weights: list[float] = []
        self._scorers = []
        for name, found in given.items():
            parameters = dict(found) if isinstance(found, Mapping) else {"weight": found}
            key = f"router.scorers.{name}"
            self._weights.append(number(f"{key}.weight", parameters.pop("weight", 1.0), least=0))
            self._scorers.append(_made(key, SCORERS, name, parameters))
        if not any(self._weights):
            raise InputError("router.scorers has no weight greater than 0")
        self._filters = [
            _made(f"router.filters.{name}", FILTERS, name, dict(found or {}))
            for name, found in _mapping("router.filters", filters or {}).items()
        ]

    def route(self, request: Request, candidates: NDArray[np.int64], view: ClusterView) -> int:
        for each in self._filters:
            kept = each.keeps(request, candidates, view)
            if kept.any():
                candidates = candidates[kept]
        chosen = int(candidates[0])
        if len(candidates) > 1:
            total = np.zeros(len(candidates))
            for weight, scorer in zip(self._weights, self._scorers, strict=True):
                total += weight * scorer.score(request, candidates, view)
            best = candidates[total == total.max()]
            chosen = int(best[view.rng.integers(len(best))] if len(best) > 1 else best[0])
        for scorer in self._scorers:
            scorer.routed(request, chosen, view)
        return chosen


def _mapping(key: str, given: Any) -> Mapping[str, Any]:
    if isinstance(given, Mapping):
        return given
    raise InputError(f"{key} is {given!r}, must be a mapping, such as {{queue: 2, kv_cache: 2}}")


def _made(key: str, known: dict[str, Callable[..., Made]], name: str, parameters: dict[str, Any]) -> Made:
    make = known[choice("a name of " + key.rpartition(".")[0], name, known)]
    try:
        return make(**parameters)
    except TypeError:
        raise InputError(f"{key} takes other parameters than {', '.join(map(str, parameters))}") from None
