"""Route to the replica with the fewest requests."""

from __future__ import annotations

import numpy as np
from mypy_extensions import mypyc_attr
from numpy.typing import NDArray

from simlora.core.request import Request
from simlora.policies.routing.base import Router
from simlora.policies.views import ClusterView


@mypyc_attr(allow_interpreted_subclasses=True)
class MostIdle(Router):
    """Fewest requests, running and waiting; of equals the lowest id. Source: CaraServe §7.5."""

    def route(self, request: Request, candidates: NDArray[np.int64], view: ClusterView) -> int:
        outstanding = view.outstanding
        if len(candidates) == 1:
            return int(candidates[0])
        if len(candidates) == len(outstanding):
            return int(outstanding.argmin())
        return int(candidates[outstanding[candidates].argmin()])
