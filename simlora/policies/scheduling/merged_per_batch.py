"""Merge one adapter, serve its requests, and change only when the batch is empty."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import takewhile

from simlora.core.adapter import Adapter
from simlora.core.checks import whole
from simlora.core.request import Request
from simlora.policies.scheduling.base import SchedulerOutput
from simlora.policies.scheduling.fcfs import Fcfs
from simlora.policies.views import ReplicaView


class MergedPerBatch(Fcfs):
    """The ablation of S-LoRA (MLSys'24) §7.5, x(W + AB).

    The queue's head picks the adapter when the batch is empty; it is merged anew for every batch. While
    the batch runs, requests of that adapter join it, as long as no more than `most_others` requests of
    other adapters wait ahead of the first of them. The limit is the released router's. There the
    adapter is taken out as soon as the batch is empty; here just before the next one is merged.
    """

    merges = True

    def __init__(self, most_others: int = 30) -> None:
        self.most_others = whole("scheduler.most_others", most_others, "requests", least=0)
        self._adapter: Adapter | None = None

    def schedule(self, view: ReplicaView) -> SchedulerOutput:
        if view.running:
            return super().schedule(view)
        self._adapter = next(iter(view.waiting)).adapter
        decision = super().schedule(view)
        return decision._replace(unmerge=view.merged is not None, merge=self._adapter)

    def order(self, view: ReplicaView) -> Iterable[Request]:
        ahead = sum(1 for _ in takewhile(lambda request: request.adapter is not self._adapter, view.waiting))
        if ahead > self.most_others:
            return ()
        return (request for request in view.waiting if request.adapter is self._adapter)

    def on_arrival(self) -> int:
        """An arrival may be the first of the batch's adapter."""
        return 0
