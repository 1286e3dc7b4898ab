"""The router slot: which replica gets a request."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np
from numpy.typing import NDArray

from simlora.core.request import Request
from simlora.policies.views import ClusterView


class Router(ABC):
    """Picks a replica for each request; one instance per cluster.

    Only an `informed` router may read the view's `loads` and `execution_s`; `loads` costs some µs per request.
    """

    informed = False

    @abstractmethod
    def route(self, request: Request, candidates: NDArray[np.int64], view: ClusterView) -> int:
        """Return one of `candidates`, the ids of the replicas that may serve the request, ascending."""
