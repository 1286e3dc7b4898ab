"""Chunked prefill under two targets: late requests are aborted, and the time of an iteration is bounded."""

from __future__ import annotations

from collections.abc import Container

from mypy_extensions import mypyc_attr

from simlora.core.checks import GivenFloat, GivenInt, number
from simlora.core.request import Request
from simlora.policies.scheduling.base import Abort, SchedulerOutput
from simlora.policies.scheduling.budget import Budget, TimeBudget
from simlora.policies.scheduling.chunked_prefill import ChunkedPrefill
from simlora.policies.scheduling.patience import REASON, Patience
from simlora.policies.views import ReplicaView


@mypyc_attr(allow_interpreted_subclasses=True)
class ChunkedSlo(ChunkedPrefill):
    """`ChunkedPrefill` with a first-token target and a bound on the time of an iteration.

    At every boundary, waiting requests older than `slo_s - margin_s` are aborted. The others start in order of
    arrival, even under overload; requests whose prefill has begun are always served. Beside a decoding batch, only as
    many tokens are prefilled as let the iteration end within `pass_s` by the run's latency models. Fewer tokens let
    fewer requests join, which shrinks the batch until it meets the bound. `slo_s` or `pass_s` None disables that
    target.
    Source: of no paper. Aborting is S-LoRA's (MLSys'24, Appendix B) without its change to newest first. A token budget
    derived from a time-between-tokens target is Sarathi-Serve's (OSDI'24 §4.3), which profiles it once; this scheduler
    computes it at every boundary from the batch, its contexts and its ranks. The predicted time of a pass is as exact
    as the simulator; docs/composition.md shows the effect of an error of a tenth in either direction.
    """

    def __init__(
        self,
        max_batched_tokens: GivenInt = 8192,
        slo_s: GivenFloat | None = None,
        margin_s: GivenFloat = 0.1,
        pass_s: GivenFloat | None = None,
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
        return decision.replace(
            actions=tuple(Abort(request, REASON) for request in late.values()),
            until_s=self.patience.next_s(view, late),
            skipped=max(decision.skipped - len(late), 0),  # aborted requests are not looked at
        )

    def _budget(self, view: ReplicaView) -> Budget:
        if self.pass_s is None:
            return super()._budget(view)
        return TimeBudget(view, self.max_batched_tokens - view.step_tokens, self.pass_s)

    def _ignores(self, request: Request) -> bool:
        return request.id in self._late
