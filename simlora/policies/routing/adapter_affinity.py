"""Route to a replica that already has the adapter, unless its load is too high."""

from __future__ import annotations

import numpy as np
from mypy_extensions import mypyc_attr
from numpy.typing import NDArray

from simlora.core.checks import GivenFloat, number
from simlora.core.request import Request
from simlora.policies.routing.base import Router
from simlora.policies.views import ClusterView


@mypyc_attr(allow_interpreted_subclasses=True)
class AdapterAffinity(Router):
    """Pick the least loaded replica with the adapter in HBM or in flight; of equals the lowest id.

    Load is the number of requests. Replicas with `slack` or more requests above the least loaded candidate are
    excluded. If none remains, and for the base model, the least loaded candidate is picked.
    Source: none of the five papers; operators do this to reuse adapters and the KV of their prompts.
    """

    def __init__(self, slack: GivenFloat = 4.0) -> None:
        self.slack = number("router.slack", slack, "requests", above=0)

    def route(self, request: Request, candidates: NDArray[np.int64], view: ClusterView) -> int:
        outstanding = view.outstanding[candidates]
        if request.adapter is not None:
            has = view.resident(request.adapter)[candidates] & (outstanding < outstanding.min() + self.slack)
            if has.any():
                candidates, outstanding = candidates[has], outstanding[has]
        return int(candidates[outstanding.argmin()])
