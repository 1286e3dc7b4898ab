"""The router slot: which replica gets a request."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np
from numpy.typing import NDArray

from simlora.core.request import Request
from simlora.policies.views import ClusterView


class Router(ABC):
    """Picks a replica for each request; one instance per cluster. `informed` enables the view's `loads`.

    Keeping `loads` costs a few microseconds per request.
    """

    informed = False

    @abstractmethod
    def route(self, request: Request, candidates: NDArray[np.int64], view: ClusterView) -> int:
        """Return one of `candidates`, the ids of the replicas that may serve the request, ascending."""
