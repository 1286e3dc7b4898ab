"""The router slot: which replica gets this request?"""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np
from numpy.typing import NDArray

from simlora.core.request import Request
from simlora.policies.views import ClusterView


class Router(ABC):
    """One instance a cluster. Only an `informed` router may read the view's `loads` and `execution_s`."""

    informed = False

    @abstractmethod
    def route(self, request: Request, candidates: NDArray[np.int64], view: ClusterView) -> int:
        """Return one of `candidates`, the ids of the replicas that may serve the request, ascending."""
