"""Prefer the adapters that are in the batch, once there are enough of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain, takewhile

from mypy_extensions import mypyc_attr

from simlora.core.checks import GivenInt, whole
from simlora.core.request import Request
from simlora.policies.scheduling.base import NEVER, SchedulerOutput
from simlora.policies.scheduling.fcfs import Fcfs
from simlora.policies.views import Admission, Refusal, ReplicaView


@mypyc_attr(allow_interpreted_subclasses=True)
class AdapterClustering(Fcfs):
    """Once the batch holds `clusters` adapters, admit waiting requests of those adapters first, then the rest by fcfs.

    After a refusal for prompt tokens among the first group, the second group is still tried, as in the released
    router; after a refusal for memory it is not, because there the refused request stays counted. The released router
    also keeps counting a request refused for its prompt; this scheduler does not.
    Source: S-LoRA (MLSys'24) A.2 and its released router.
    """

    def __init__(self, clusters: GivenInt = 8) -> None:
        self.clusters = whole("scheduler.clusters", clusters, "adapters", least=1)
        self._clustered = False

    def schedule(self, view: ReplicaView) -> SchedulerOutput:
        self._clustered = self._full(view)
        return super().schedule(view)

    def order(self, view: ReplicaView) -> Iterable[Request]:
        if not self._full(view):
            return view.waiting
        others = filter(lambda r: r.adapter is None or not view.in_use(r.adapter), view.waiting)
        return chain(self._ours(view), others)

    def admit(self, view: ReplicaView, admission: Admission) -> tuple[Request, ...]:
        if not self._clustered:
            return super().admit(view, admission)
        first = tuple(takewhile(admission.admit, self._ours(view)))
        if admission.refusal not in (None, Refusal.TOKENS):
            return first
        taken = {request.id for request in first}
        others = filter(lambda request: request.id not in taken, view.waiting)
        return (*first, *takewhile(admission.admit, others))

    def on_arrival(self) -> int:
        """Return `on_arrival` after a refusal: an arrival for an adapter of the batch goes before other adapters."""
        return 0 if self._clustered else NEVER

    def _full(self, view: ReplicaView) -> bool:
        return view.running > 0 and view.adapters >= self.clusters

    def _ours(self, view: ReplicaView) -> Iterator[Request]:
        return filter(lambda r: r.adapter is not None and view.in_use(r.adapter), view.waiting)
