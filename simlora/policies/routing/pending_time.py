"""Route to the replica with the shortest estimated pending time: adapter load plus queued batches."""

from __future__ import annotations

from collections.abc import Set
from typing import ClassVar

import numpy as np
from mypy_extensions import mypyc_attr
from numpy.typing import NDArray

from simlora.core.checks import GivenBool, GivenFloat, number, switch
from simlora.core.request import Request
from simlora.policies.routing.base import Router
from simlora.policies.views import ClusterView

NOWHERE: Set[int] = frozenset()


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
        replicas: list[int] = candidates.tolist()
        if request.adapter is not None and not self.loads:
            there = view.holders(request.adapter)
            replicas = [replica for replica in replicas if replica in there] or replicas
        pending_s = self.pending_s(request, view, replicas)
        return replicas[pending_s.index(min(pending_s))]

    def pending_s(self, request: Request, view: ClusterView, replicas: list[int]) -> list[float]:
        """Return the estimated pending time on each of these replicas, in seconds."""
        size, loads, adapter_id = view.max_num_seqs, view.loads.all.replicas, request.adapter_id
        merged_saves, execution_s = 1 - self.merged_share, view.execution_s()
        if execution_s is None:
            execution_s = self.unknown_execution_s
        load_s, there = 0.0, NOWHERE
        if request.adapter is not None:
            load_s, there = view.load_s(request.adapter), view.holders(request.adapter)
        found: list[float] = []
        for replica in replicas:
            load = loads[replica]
            full = load.full_batches
            if (load.users.get(adapter_id, 0) + 1) % size == 0:
                full += 1
            seconds = ((load.requests + 1) / size - merged_saves * full) * execution_s
            found.append(seconds if replica in there else seconds + load_s)
        return found
