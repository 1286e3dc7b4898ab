"""Decode in every iteration, and prefill with the rest of a token budget."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import takewhile
from typing import ClassVar, NamedTuple

from mypy_extensions import mypyc_attr

from simlora.core.checks import GivenInt, whole
from simlora.core.request import Request
from simlora.policies.scheduling.base import NEVER, Scheduler, SchedulerOutput
from simlora.policies.scheduling.budget import Budget, TokenBudget
from simlora.policies.views import Admission, Refusal, ReplicaView, WaitingView


class Started(NamedTuple):
    """Waiting requests that start now, and how many tokens of each.

    `passing`: some requests were refused for their adapter and skipped. `refused`: the last request was refused for
    another reason, which holds for `steps` decode steps. `last` is the last request looked at; None: the whole queue
    was looked at.
    """

    requests: Sequence[Request] = ()
    chunks: Sequence[int] = ()
    passing: bool = False
    refused: bool = False
    steps: int = NEVER
    last: Request | None = None

    def skipped(self, waiting: WaitingView) -> int:
        """Return how many waiting requests were looked at and skipped."""
        if not self.passing:
            return 0
        looked_at = len(waiting) if self.last is None else waiting.place(self.last) + 1
        return looked_at - len(self.requests) - self.refused


@mypyc_attr(allow_interpreted_subclasses=True)
class ChunkedPrefill(Scheduler):
    """An iteration processes at most `max_batched_tokens`: one for each running request, then chunks of prompts.

    Prefills that have begun continue first, in order of admission; then waiting requests start in order of arrival,
    until one does not fit. A request that is refused because of `replica.max_loras` is skipped, and from then on only
    requests for adapters of the batch are looked at. No request starts at a boundary at which one was preempted.
    Source: Sarathi-Serve (OSDI'24) §4; vLLM's V1 scheduler. Differs from the latter: a request starts when there is
    memory for its whole prompt, not for its first chunk, and a preempted request returns to its place in the queue,
    not to its head.
    """

    chunks: ClassVar[bool] = True

    def __init__(self, max_batched_tokens: GivenInt = 2048) -> None:
        self.max_batched_tokens = whole("scheduler.max_batched_tokens", max_batched_tokens, "tokens", least=1)
        # Adapters of the batch, last waiting request and `returned`, as of when the whole queue was skipped.
        self._passed: tuple[int, Request, int] | None = None

    def schedule(self, view: ReplicaView) -> SchedulerOutput:
        if self._passed is not None and self._still_skipped(*self._passed, view):
            self._passed = view.adapters, next(reversed(view.waiting)), view.waiting.returned
            return SchedulerOutput(on_arrival=0, skipped=len(view.waiting))
        self._passed = None
        budget = self._budget(view)
        chunks = {request: tokens for request in view.prefilling if (tokens := budget.take(request))}
        started = Started()
        if not budget.spent and view.waiting and not view.preempted:
            started = self._start(view, budget)
            chunks |= zip(started.requests, started.chunks, strict=True)
        skipped, refused, steps = started.skipped(view.waiting), started.refused, started.steps
        if chunks:
            return SchedulerOutput(
                tuple(chunks), chunks=tuple(chunks.values()), decode=view.running > 0, skipped=skipped
            )
        if view.prefilling or view.preempted:
            steps = 1
        elif started.passing and not refused:
            self._passed = view.adapters, next(reversed(view.waiting)), view.waiting.returned
        on_arrival = NEVER if refused and not started.passing else 0
        return SchedulerOutput(steps=steps, on_arrival=on_arrival, skipped=skipped)

    def _budget(self, view: ReplicaView) -> Budget:
        """Return the budget of one iteration's prefills."""
        return TokenBudget(self.max_batched_tokens - view.running)

    def _start(self, view: ReplicaView, budget: Budget) -> Started:
        """Try waiting requests until the budget is spent or one does not fit."""
        admission = view.trial()
        requests: list[Request] = []
        chunks: list[int] = []
        passing = False
        for request in self._candidates(view, admission):
            if admission.admit(request):
                tokens = budget.take(request)
                if not tokens:
                    return Started(requests, chunks, passing, refused=True, last=request)
                requests.append(request)
                chunks.append(tokens)
                if budget.spent:
                    return Started(requests, chunks, passing, last=request)
            elif admission.refusal is Refusal.ADAPTERS:
                passing = True
            else:
                return Started(requests, chunks, passing, True, admission.retry_steps(), request)
        return Started(requests, chunks, passing)

    def _still_skipped(self, adapters: int, last: Request, returned: int, view: ReplicaView) -> bool:
        """Whether the batch's adapters are unchanged since the whole queue was skipped, and no arrival since uses one.

        In an hour of 384 adapters on 32 slots this check leaves 20,291 of 47,094 trials.
        """
        waiting = view.waiting
        if view.adapters != adapters or view.preempted or view.prefilling:
            return False
        if not waiting or waiting.returned != returned:
            return False
        came = takewhile(lambda request: request is not last, reversed(view.waiting))
        return not any(request.adapter is None or view.in_use(request.adapter) for request in came)

    def _candidates(self, view: ReplicaView, admission: Admission) -> Iterator[Request]:
        """Yield waiting requests in order; after a refusal for an adapter, only those that need no further adapter.

        The others would be refused as well, or overtake the refused one. In a queue of which only a few adapters run
        they are thousands.
        """
        for request in view.waiting:
            yield request
            if admission.refusal is Refusal.ADAPTERS:
                yield from view.waiting.among(admission.adapters, after=request)
                return
