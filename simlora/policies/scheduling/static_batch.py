"""One adapter and one batch at a time, from start to end."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from itertools import takewhile

from mypy_extensions import mypyc_attr

from simlora.core.adapter import Adapter
from simlora.core.request import Request
from simlora.policies.scheduling.base import Scheduler, SchedulerOutput
from simlora.policies.views import ReplicaView


@mypyc_attr(allow_interpreted_subclasses=True)
class StaticBatch(Scheduler):
    """No continuous batching: a batch of one adapter runs until its last request is done.

    Each round takes all waiting requests, groups them by adapter in order of first arrival, and serves the groups
    one after another in batches of at most `max_num_seqs`. Requests that arrive meanwhile wait for the next round.
    Source: HuggingFace PEFT as the baseline of S-LoRA (MLSys'24) §7.1, A.1, in its published benchmark.
    """

    def __init__(self) -> None:
        self._round: deque[Request] = deque()

    def schedule(self, view: ReplicaView) -> SchedulerOutput:
        if view.running or view.loading:
            return SchedulerOutput()
        here = {request.id for request in view.waiting}
        self._round = deque(request for request in self._round if request.id in here)  # some have migrated
        if not self._round:
            self._round = deque(_by_adapter(view.waiting))
        admission, adapter = view.trial(), self._round[0].adapter
        ours = takewhile(lambda request: request.adapter is adapter, self._round)
        admitted = tuple(takewhile(admission.admit, ours))
        for _ in admitted:
            self._round.popleft()
        return SchedulerOutput(prefill=admitted)

    def order(self, view: ReplicaView) -> Iterable[Request]:
        taken = {request.id for request in self._round}
        return (*self._round, *(request for request in view.waiting if request.id not in taken))


def _by_adapter(waiting: Iterable[Request]) -> Iterator[Request]:
    groups: dict[Adapter | None, list[Request]] = {}
    for request in waiting:
        groups.setdefault(request.adapter, []).append(request)
    for group in groups.values():
        yield from group
