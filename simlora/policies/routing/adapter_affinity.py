"""The replica that has the adapter already, unless it has too much to do."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from simlora.core.checks import number
from simlora.core.request import Request
from simlora.policies.routing.base import Router
from simlora.policies.views import ClusterView


class AdapterAffinity(Router):
    """Of those with the adapter in HBM, or on its way, the one with the fewest requests; of equals the lowest number.

    Whoever has `slack` more requests than the idlest of all candidates does not count. If nobody is left, and for the
    base model, it is the idlest.
    Source: none of the five papers; what operators do to have adapters, and the KV of their prompts, found again.
    """

    def __init__(self, slack: float = 4.0) -> None:
        self.slack = number("router.slack", slack, "requests", above=0)

    def route(self, request: Request, candidates: NDArray[np.int64], view: ClusterView) -> int:
        outstanding = view.outstanding[candidates]
        if request.adapter is not None:
            has = view.resident(request.adapter)[candidates] & (outstanding < outstanding.min() + self.slack)
            if has.any():
                candidates, outstanding = candidates[has], outstanding[has]
        return int(candidates[outstanding.argmin()])
