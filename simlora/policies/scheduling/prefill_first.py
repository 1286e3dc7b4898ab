"""Prefill waiting requests whole, before anything decodes."""

from __future__ import annotations

from mypy_extensions import mypyc_attr

from simlora.core.checks import GivenInt
from simlora.policies.scheduling.base import SchedulerOutput
from simlora.policies.scheduling.budget import Budget, WholePrompts
from simlora.policies.scheduling.chunked_prefill import ChunkedPrefill
from simlora.policies.views import ReplicaView


@mypyc_attr(allow_interpreted_subclasses=True)
class PrefillFirst(ChunkedPrefill):
    """Whenever waiting requests fit, an iteration prefills them, and only them, each in one piece.

    An iteration prefills at most `max_batched_tokens`, or one prompt that is longer. The running batch decodes in
    iterations in which no request can start. A request that is refused because of `replica.max_loras` is skipped, as
    by `ChunkedPrefill`.
    Source: vLLM's V0 scheduler without chunked prefill (0.5). Differs: it refuses a prompt that is longer than its
    limit, and its order of preempted requests is that of `ChunkedPrefill`.
    """

    def __init__(self, max_batched_tokens: GivenInt = 4096) -> None:
        super().__init__(max_batched_tokens)

    def schedule(self, view: ReplicaView) -> SchedulerOutput:
        decision = super().schedule(view)
        return decision.replace(decode=False) if decision.decode else decision

    def _budget(self, view: ReplicaView) -> Budget:
        return WholePrompts(self.max_batched_tokens)
