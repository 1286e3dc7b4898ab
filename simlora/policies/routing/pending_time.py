"""Route to the replica with the shortest estimated pending time: adapter load plus queued batches."""

from __future__ import annotations

from math import inf
from typing import ClassVar

import numpy as np
from mypy_extensions import mypyc_attr
from numpy.typing import NDArray

from simlora.core.build import BUILD
from simlora.core.checks import GivenBool, GivenFloat, number, switch
from simlora.core.request import Request
from simlora.policies.routing.base import Router
from simlora.policies.views import ClusterView

FEW = 64
"""Up to this many replicas, plain numbers are faster than arrays. Compiled, always."""


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
        there = set[int]() if request.adapter is None else view.holders(request.adapter)
        replicas: list[int] = candidates.tolist()
        if there and not self.loads:
            replicas = [replica for replica in replicas if replica in there] or replicas
        if BUILD == "interpreted" and len(replicas) > FEW:
            return replicas[int(self.pending_s(request, view)[replicas].argmin())]
        return self._shortest(request, view, replicas, there)

    def _shortest(self, request: Request, view: ClusterView, replicas: list[int], there: set[int]) -> int:
        """Return the first of these replicas with the shortest pending time; `there` have the adapter."""
        loads, adapter_id, size = view.loads.all.replicas, request.adapter_id, view.max_num_seqs
        merged_saves, execution_s = 1 - self.merged_share, self._execution_s(view)
        load_s = 0.0 if request.adapter is None else view.load_s(request.adapter)
        chosen, shortest_s = replicas[0], inf
        for replica in replicas:
            load = loads[replica]
            full = load.full_batches
            if (load.users.get(adapter_id, 0) + 1) % size == 0:
                full += 1
            seconds = ((load.requests + 1) / size - merged_saves * full) * execution_s
            if load_s > 0.0 and replica not in there:
                seconds += load_s
            if seconds < shortest_s:
                chosen, shortest_s = replica, seconds
        return chosen

    def pending_s(self, request: Request, view: ClusterView) -> NDArray[np.float64]:
        """Return the estimated pending time on every replica, in seconds `[replicas]`; bits are as in `_shortest`."""
        size, load = view.max_num_seqs, view.loads.all
        full = load.full_batches + ((load.requests_for(request.adapter) + 1) % size == 0)
        batches = (view.outstanding + 1) / size - (1 - self.merged_share) * full
        pending_s: NDArray[np.float64] = batches * self._execution_s(view)
        if request.adapter is not None:
            pending_s += view.load_s(request.adapter) * ~view.resident(request.adapter)
        return pending_s

    def _execution_s(self, view: ClusterView) -> float:
        execution_s = view.execution_s()
        return self.unknown_execution_s if execution_s is None else execution_s
