"""PEFT with continuous batching and paged KV added, still one adapter at a time."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import takewhile

from mypy_extensions import mypyc_attr

from simlora.core.adapter import Adapter
from simlora.core.checks import GivenBool, switch
from simlora.core.request import Request
from simlora.policies.scheduling.base import SchedulerOutput
from simlora.policies.scheduling.fcfs import Fcfs
from simlora.policies.views import ReplicaView


@mypyc_attr(allow_interpreted_subclasses=True)
class PeftContinuous(Fcfs):
    """Strictly first come, first served: a request of another adapter, and all behind it, wait for the batch to end.

    The batch's adapter is merged, and unmerged only before another adapter is merged. With `merge` false changing
    adapters costs no switch: use that for full copies of merged models (replica.full_copies), which cost only loads.
    Source: dLoRA (OSDI'24) §2.3, §7.1: PEFT with selective batching and PagedAttention added, which "forces other
    types of requests to wait until the completion of the current batch"; its artifact's schedule of PEFT and of vLLM
    with uniform allocation, which stops at the first request of another adapter.
    """

    def __init__(self, merge: GivenBool = True) -> None:
        self._merges = switch("scheduler.merge", merge)
        self._adapter: Adapter | None = None

    @property
    def merges(self) -> bool:  # type: ignore[override]  # the only one whose instances differ
        return self._merges

    def schedule(self, view: ReplicaView) -> SchedulerOutput:
        if view.running or view.loading:
            return super().schedule(view)
        self._adapter = next(iter(view.waiting)).adapter
        decision = super().schedule(view)
        if not self._merges or view.merged is self._adapter:
            return decision
        return decision.replace(unmerge=view.merged is not None, merge=self._adapter)

    def order(self, view: ReplicaView) -> Iterable[Request]:
        return takewhile(lambda request: request.adapter is self._adapter, view.waiting)

    def on_arrival(self) -> int:
        """Return 0: an arrival may be the next to start if no request waits."""
        return 0
