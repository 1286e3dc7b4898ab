"""Chunked prefill that knows its targets: nobody is served too late, and no iteration takes too long."""

from __future__ import annotations

from collections.abc import Container, Iterator

from simlora.core.checks import number
from simlora.core.request import Request
from simlora.policies.scheduling.base import SchedulerOutput
from simlora.policies.scheduling.budget import Budget, TimeBudget
from simlora.policies.scheduling.chunked_prefill import ChunkedPrefill
from simlora.policies.scheduling.patience import REASON, Patience
from simlora.policies.views import Admission, ReplicaView


class ChunkedSlo(ChunkedPrefill):
    """As `ChunkedPrefill`, with an eye on both targets.

    At every boundary the requests older than `slo_s - margin_s` are aborted; the others start in order of arrival,
    however many come, and those whose prefill has begun are served. Beside a batch that decodes only as much is
    prefilled as lets the iteration end within `pass_s`, by the latency models of the run: with fewer tokens fewer
    requests join, until the batch is as small as that takes. None of `slo_s` or `pass_s`: without the one or the other.
    Source: of no paper. Giving up is S-LoRA's (MLSys'24, Appendix B) without its change to the newest first; a budget
    of tokens that follows from a target of the time between tokens is Sarathi-Serve's (OSDI'24 §4.3), which profiles
    it once, where this asks at every boundary, of the batch, its contexts and its ranks. It is told what a pass takes
    as exactly as the simulator knows; docs/composition.md has what a tenth more or less does.
    """

    def __init__(
        self,
        max_batched_tokens: int = 8192,
        slo_s: float | None = None,
        margin_s: float = 0.1,
        pass_s: float | None = None,
    ) -> None:
        super().__init__(max_batched_tokens)
        self.patience = None if slo_s is None else Patience(slo_s, margin_s)
        self.pass_s = None if pass_s is None else number("scheduler.pass_s", pass_s, "seconds", above=0)
        self._late: Container[int] = ()

    def schedule(self, view: ReplicaView) -> SchedulerOutput:
        if self.patience is None:
            return super().schedule(view)
        self._late = late = self.patience.late(view)
        decision = super().schedule(view)
        return decision._replace(
            abort=tuple((request, REASON) for request in late.values()),
            until_s=self.patience.next_s(view, late),
            skipped=max(decision.skipped - len(late), 0),  # nobody looks at who is given up
        )

    def _budget(self, view: ReplicaView) -> Budget:
        if self.pass_s is None:
            return super()._budget(view)
        return TimeBudget(view, self.max_batched_tokens - view.running, self.pass_s)

    def _candidates(self, view: ReplicaView, admission: Admission) -> Iterator[Request]:
        return (request for request in super()._candidates(view, admission) if request.id not in self._late)
