"""Route to the replica with the shortest estimated pending time: adapter load plus queued batches."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from mypy_extensions import mypyc_attr
from numpy.typing import NDArray

from simlora.core.checks import GivenBool, GivenFloat, number, switch
from simlora.core.request import Request
from simlora.policies.routing.base import Router
from simlora.policies.views import ClusterView


@mypyc_attr(allow_interpreted_subclasses=True)
class PendingTime(Router):
    """dLoRA's dispatch: seconds to load the adapter where it is not in HBM, plus seconds of the replica's batches.

    A replica's requests, including the new one, form full batches of `max_num_seqs` for one adapter or for the base
    model, and a rest. A batch takes the mean execution time of a request (`unknown_execution_s` before any has
    finished); a full batch takes `merged_share` of that, because it can run merged. The shortest time wins, of equals
    the lowest id.

    Source: dLoRA (OSDI'24) §5.1; numbers from their code. Left open by both, or different here:
    - The rest counts as the fraction of a batch that it fills. Rounded up, as whole batches would run, or down, as in
      their code, all replicas with room are equal and the first one fills up; a fraction favours those with fewer.
    - Their code leaves out the execution time, so that a batch weighs as much as a second of loading. The paper says
      time.
    - Their code counts a replica's requests without the new one.
    - Once requests migrate, their code no longer loads adapters where it sends a request. `loads` false does that:
      only replicas that have the adapter are considered, unless none has it.
    """

    informed: ClassVar[bool] = True

    def __init__(
        self, merged_share: GivenFloat = 0.6, unknown_execution_s: GivenFloat = 5.0, loads: GivenBool = True
    ) -> None:
        self.loads = switch("router.loads", loads)
        self.merged_share = number("router.merged_share", merged_share, least=0, most=1)
        self.unknown_execution_s = number(
            "router.unknown_execution_s", unknown_execution_s, "seconds", above=0
        )

    def route(self, request: Request, candidates: NDArray[np.int64], view: ClusterView) -> int:
        pending_s = self.pending_s(request, view)
        if request.adapter is not None and not self.loads:
            there = view.resident(request.adapter)
            if there[candidates].any():
                candidates = candidates[there[candidates]]
        if len(candidates) < len(pending_s):
            pending_s = pending_s[candidates]
        return int(candidates[pending_s.argmin()])

    def pending_s(self, request: Request, view: ClusterView) -> NDArray[np.float64]:
        """Return the estimated pending time on every replica, in seconds `[replicas]`."""
        size, load = view.max_num_seqs, view.loads.all
        full = load.full_batches + ((load.requests_for(request.adapter) + 1) % size == 0)
        batches = (view.outstanding + 1) / size - (1 - self.merged_share) * full
        execution_s = view.execution_s()
        pending_s: NDArray[np.float64] = batches * (
            self.unknown_execution_s if execution_s is None else execution_s
        )
        if request.adapter is not None:
            pending_s += view.load_s(request.adapter) * ~view.resident(request.adapter)
        return pending_s
