"""Route by the shares that the placement gives to an adapter's replicas."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from mypy_extensions import mypyc_attr
from numpy.typing import NDArray

from simlora.core.request import Request
from simlora.policies.routing.base import Router
from simlora.policies.views import ClusterView


@mypyc_attr(allow_interpreted_subclasses=True)
class RoutingTable(Router):
    """Pick a replica at random, with probability proportional to its share of the adapter's requests.

    Only current candidates count: the share of a failed replica goes to the others. Without shares from the placement,
    as for the base model, all are equally likely. Source: LoRAServe §IV, the tuples (adapter, server, phi).
    """

    blind: ClassVar[bool] = True

    def route(self, request: Request, candidates: NDArray[np.int64], view: ClusterView) -> int:
        if len(candidates) == 1:
            return int(candidates[0])
        shares = view.shares(request.adapter, candidates)
        if shares is None:
            return int(candidates[view.rng.integers(len(candidates))])
        reached = shares.cumsum()
        place = int(reached.searchsorted(view.rng.random() * reached[-1], side="right"))
        return int(candidates[min(place, len(candidates) - 1)])
