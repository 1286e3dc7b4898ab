"""Abort requests that would miss their target, and serve the rest newest or oldest first."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import takewhile

from mypy_extensions import mypyc_attr

from simlora.core.checks import GivenFloat
from simlora.core.request import Request
from simlora.policies.scheduling.base import Abort, Scheduler, SchedulerOutput
from simlora.policies.scheduling.fcfs import UNTIL_ARRIVAL
from simlora.policies.scheduling.patience import REASON, Patience
from simlora.policies.views import ReplicaView

WEIGHT = 0.7
"""Weight of the latest look in both moving averages; earlier looks have 0.3."""
IDLE_LOOKS = 8
"""Looks at an empty queue after which the average has settled: 0.3^8 of any queue is less than one."""


@mypyc_attr(allow_interpreted_subclasses=True)
class EarlyAbort(Scheduler):
    """S-LoRA's admission control: two moving averages tell whether the replica keeps up with its arrivals.

    At every look at the queue, requests older than `slo_s - margin_s` are aborted: their prefill would end after
    their first-token target. If on average at least as many requests arrived since the last admission as the last
    admissions took, the newest are served first, otherwise the oldest. Both averages are truncated to whole numbers
    after every look. Looks happen as with fcfs.
    Source: S-LoRA (MLSys'24) Appendix B; weights, truncation and the margin, which stands for the longest prefill,
    from its released router. The released router looks every 10 ms when idle.
    """

    def __init__(self, slo_s: GivenFloat = 6.0, margin_s: GivenFloat = 0.5) -> None:
        self.patience = Patience(slo_s, margin_s)
        self._arrivals = 1
        self._admissions = 1
        self._left = 0  # requests that the last admission left in the queue

    def schedule(self, view: ReplicaView) -> SchedulerOutput:
        rest = view.max_wait_tokens - view.steps_since_prefill if view.running else 0
        if rest > 0:
            until_arrival = not view.waiting and self._settles(0)
            return SchedulerOutput(on_arrival=rest) if until_arrival else SchedulerOutput(steps=rest)
        self._look(view)
        late = self.patience.late(view)
        left = len(view.waiting) - len(late)
        aborts = tuple(Abort(request, REASON) for request in late.values())
        admission = view.trial()
        hopeful = filter(lambda request: request.id not in late, self.order(view))
        admitted = tuple(takewhile(admission.admit, hopeful))
        if admitted:
            self._left = left - len(admitted)
            self._admissions = max(int(WEIGHT * len(admitted) + (1 - WEIGHT) * self._admissions), 1)
            return SchedulerOutput(prefill=admitted, actions=aborts)
        settled = self._settles(left)
        if not left:
            return (UNTIL_ARRIVAL if settled else SchedulerOutput(steps=1)).replace(actions=aborts)
        steps = admission.retry_steps() if settled else 1
        return SchedulerOutput(
            steps=steps, on_arrival=0, until_s=self.patience.next_s(view, late), actions=aborts
        )

    def order(self, view: ReplicaView) -> Iterable[Request]:
        return reversed(view.waiting) if self._overloaded else view.waiting

    @property
    def _overloaded(self) -> bool:
        return self._arrivals >= self._admissions

    def _look(self, view: ReplicaView) -> None:
        """Update the average of arrivals since the last admission."""
        if not view.running and next(iter(view.waiting)).arrival_s == view.now_s:
            for _ in range(IDLE_LOOKS):  # the replica was idle until now
                self._arrivals = self._average(0)
        self._arrivals = self._average(len(view.waiting))

    def _average(self, waiting: int) -> int:
        return int(WEIGHT * (waiting - self._left) + (1 - WEIGHT) * self._arrivals)

    def _settles(self, waiting: int) -> bool:
        """Whether another look at a queue of this length would leave the average unchanged."""
        return self._average(waiting) == self._arrivals
