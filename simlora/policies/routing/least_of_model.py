"""Route to the replica with the fewest requests of the same model."""

from __future__ import annotations

import numpy as np
from mypy_extensions import mypyc_attr
from numpy.typing import NDArray

from simlora.core.request import Request
from simlora.policies.routing.base import Router
from simlora.policies.views import ClusterView


@mypyc_attr(allow_interpreted_subclasses=True)
class LeastOfModel(Router):
    """Fewest requests, running and waiting, of the request's own adapter; of equals the lowest id.

    Source: LiteLLM 1.108.7 and 1.110.2, `routing_strategy: least-busy` (router_strategy/least_busy.py): it counts
    requests in flight by model group and deployment, and a gateway has a model group for each adapter. What a replica
    does for other adapters is not counted, so that rare adapters all go to the first replica.
    """

    def route(self, request: Request, candidates: NDArray[np.int64], view: ClusterView) -> int:
        of_model = [
            sum(each.adapter is request.adapter for each in view.requests_of(replica))
            for replica in candidates.tolist()
        ]
        return int(candidates[of_model.index(min(of_model))])
