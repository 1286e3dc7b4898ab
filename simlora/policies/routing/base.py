"""The router slot: which replica gets a request."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar

import numpy as np
from mypy_extensions import mypyc_attr
from numpy.typing import NDArray

from simlora.core.errors import not_defined
from simlora.core.request import Request
from simlora.policies.views import ClusterView


@mypyc_attr(allow_interpreted_subclasses=True)
class Router:
    """Picks a replica for each request; one instance per cluster.

    Only an `informed` router may read the view's `loads` and `execution_s`; `loads` costs some µs per request. A
    `blind` one reads nothing of the view that requests change, only `rng`, the placement's `shares` and what replicas
    are like: requests may be routed ahead, so that replicas can be simulated one after the other, and on several cores.

    `status_every_s` is the age of what replicas report where `cluster.status_every_s` does not say it; None: always
    current. Before each decision, a router that `asks` calls all replicas, each for the calibration's
    `front_end.per_call_s` (0 where it has none), and none begins an iteration until all have answered
    (engine/cluster/blocking_dispatch.py).
    """

    informed: ClassVar[bool] = False
    blind: ClassVar[bool] = False
    status_every_s: float | None = None
    asks: bool = False

    @abstractmethod
    def route(self, request: Request, candidates: NDArray[np.int64], view: ClusterView) -> int:
        """Return one of `candidates`, the ids of the replicas that may serve the request, ascending."""
        raise not_defined(self, "route")
