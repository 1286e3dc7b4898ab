"""Earliest first-token deadline first."""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heapify, heappop

from mypy_extensions import mypyc_attr

from simlora.core.request import Request
from simlora.policies.scheduling.fcfs import Fcfs
from simlora.policies.views import ReplicaView


@mypyc_attr(allow_interpreted_subclasses=True)
class EarliestDeadline(Fcfs):
    """Admit in order of deadlines, arrival plus the tenant's first-token target, up to the first that does not fit.

    With one target for all tenants this is fcfs. A request that has missed its deadline keeps its place; none is
    aborted. Each look at the queue costs O(waiting).
    Source: earliest deadline first (Liu and Layland, JACM 1973), without preemption.
    """

    def order(self, view: ReplicaView) -> Iterator[Request]:
        due = [(view.due_s(request), place, request) for place, request in enumerate(view.waiting)]
        heapify(due)
        while due:
            yield heappop(due)[2]

    def on_arrival(self) -> int:
        """Return `on_arrival` after a refusal: an arrival may be due before the refused request."""
        return 0
