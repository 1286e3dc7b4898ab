"""Route to one replica after another."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from mypy_extensions import mypyc_attr
from numpy.typing import NDArray

from simlora.core.request import Request
from simlora.policies.routing.base import Router
from simlora.policies.views import ClusterView


@mypyc_attr(allow_interpreted_subclasses=True)
class RoundRobin(Router):
    """Pick the next candidate after the replica that got the last request, wrapping around."""

    blind: ClassVar[bool] = True

    def __init__(self) -> None:
        self._next = 0

    def route(self, request: Request, candidates: NDArray[np.int64], view: ClusterView) -> int:
        chosen = int(candidates[0])
        if len(candidates) > 1:
            place = int(candidates.searchsorted(self._next))
            chosen = int(candidates[place if place < len(candidates) else 0])
        self._next = chosen + 1
        return chosen
