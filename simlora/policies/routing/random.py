"""Route to a random replica."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from simlora.core.request import Request
from simlora.policies.routing.base import Router
from simlora.policies.views import ClusterView


class Random(Router):
    """Pick one of the candidates uniformly at random."""

    def route(self, request: Request, candidates: NDArray[np.int64], view: ClusterView) -> int:
        return int(candidates[view.rng.integers(len(candidates))])
