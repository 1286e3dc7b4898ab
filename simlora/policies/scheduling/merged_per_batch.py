"""Merge one adapter, serve its requests, and change the adapter only when the batch is empty."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import takewhile
from typing import ClassVar

from mypy_extensions import mypyc_attr

from simlora.core.adapter import Adapter
from simlora.core.checks import GivenInt, whole
from simlora.core.request import Request
from simlora.policies.scheduling.base import SchedulerOutput
from simlora.policies.scheduling.fcfs import Fcfs
from simlora.policies.views import ReplicaView


@mypyc_attr(allow_interpreted_subclasses=True)
class MergedPerBatch(Fcfs):
    """The ablation of S-LoRA (MLSys'24) §7.5, x(W + AB).

    When the batch is empty, the adapter of the first waiting request is merged, even if it was merged before. While
    the batch runs, requests of that adapter join it, as long as at most `most_others` requests of other adapters
    wait ahead of the first of them; the limit is the released router's. The released router unmerges the adapter as
    soon as the batch is empty; here it is unmerged just before the next merge.
    """

    merges: ClassVar[bool] = True

    def __init__(self, most_others: GivenInt = 30) -> None:
        self.most_others = whole("scheduler.most_others", most_others, "requests", least=0)
        self._adapter: Adapter | None = None

    def schedule(self, view: ReplicaView) -> SchedulerOutput:
        if view.running:
            return super().schedule(view)
        self._adapter = next(iter(view.waiting)).adapter
        decision = super().schedule(view)
        return decision.replace(unmerge=view.merged is not None, merge=self._adapter)

    def order(self, view: ReplicaView) -> Iterable[Request]:
        ahead = sum(1 for _ in takewhile(lambda request: request.adapter is not self._adapter, view.waiting))
        if ahead > self.most_others:
            return ()
        return filter(lambda request: request.adapter is self._adapter, view.waiting)

    def on_arrival(self) -> int:
        """Return 0: an arrival may be the first waiting request of the batch's adapter."""
        return 0
