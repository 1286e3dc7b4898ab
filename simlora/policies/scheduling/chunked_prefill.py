"""Decode in every iteration, and prefill with what is left of a token budget."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import takewhile

from simlora.core.checks import whole
from simlora.core.request import Request
from simlora.policies.scheduling.base import NEVER, Decision, Scheduler
from simlora.policies.views import Admission, Refusal, ReplicaView


class ChunkedPrefill(Scheduler):
    """An iteration processes at most `max_batched_tokens`: one for each running request, then chunks.

    Prefills that have begun go on first, in order of admission; then waiting requests start in order of
    arrival, until one does not fit. One that is refused because of `replica.max_adapters` is passed over, and
    from then on only requests for the adapters of the batch are looked at. Nobody starts at a boundary at
    which somebody was preempted.
    Source: Sarathi-Serve (OSDI'24) §4; vLLM's V1 scheduler. It differs from the latter in that a request starts
    when there is memory for its whole prompt, not for its first chunk, and that a preempted one goes back to its
    place in the queue, not to its head.
    """

    chunks = True

    def __init__(self, max_batched_tokens: int = 2048) -> None:
        self.max_batched_tokens = whole("scheduler.max_batched_tokens", max_batched_tokens, "tokens", least=1)
        # Adapters of the batch, the queue's last request, and who had returned, when all were passed over.
        self._passed: tuple[int, Request, int] | None = None

    def schedule(self, view: ReplicaView) -> Decision:
        if self._passed is not None and self._still_passed_over(*self._passed, view):
            self._passed = view.adapters, next(reversed(view.waiting)), view.waiting.returned
            return Decision(on_arrival=0, passed_over=len(view.waiting))
        self._passed = None
        left = self.max_batched_tokens - view.running
        prefill: list[Request] = []
        for request in view.prefilling:
            if left <= 0:
                break
            prefill.append(request)
            left -= request.prefill_tokens
        begun = len(prefill)
        refused = passing = False
        last: Request | None = None  # looked at, where that was not the whole queue
        steps = NEVER
        if left > 0 and view.waiting and not view.preempted:
            admission = view.trial()
            for last in self._candidates(view, admission):
                if admission.admit(last):
                    prefill.append(last)
                    left -= last.prefill_tokens
                    if left <= 0:
                        break
                elif admission.refusal is Refusal.ADAPTERS:
                    passing = True
                else:
                    refused = True
                    steps = admission.retry_steps()
                    break
            else:
                last = None
        passed_over = 0
        if passing:
            looked_at = len(view.waiting) if last is None else view.waiting.place(last) + 1
            passed_over = looked_at - (len(prefill) - begun) - refused
        if prefill:
            chunks = [request.prefill_tokens for request in prefill]
            chunks[-1] += min(left, 0)
            decode = view.running > 0
            return Decision(tuple(prefill), chunks=tuple(chunks), decode=decode, passed_over=passed_over)
        if view.prefilling or view.preempted:
            steps = 1
        elif passing and not refused:
            self._passed = view.adapters, next(reversed(view.waiting)), view.waiting.returned
        on_arrival = NEVER if refused and not passing else 0
        return Decision(steps=steps, on_arrival=on_arrival, passed_over=passed_over)

    def _still_passed_over(self, adapters: int, last: Request, returned: int, view: ReplicaView) -> bool:
        """Whether no adapter has left the batch since all were passed over, and who came since needs another one.

        In an hour of 384 adapters on 32 slots it leaves 20,291 of 47,094 trials.
        """
        waiting = view.waiting
        if view.adapters != adapters or view.preempted or view.prefilling:
            return False
        if not waiting or waiting.returned != returned:
            return False
        came = takewhile(lambda request: request is not last, reversed(view.waiting))
        return not any(request.adapter is None or view.in_use(request.adapter) for request in came)

    def _candidates(self, view: ReplicaView, admission: Admission) -> Iterator[Request]:
        """Waiting requests in order; once one was refused for its adapter, only those that need no further one.

        The others would be refused as well, or overtake it: thousands, in a queue of which a few adapters run.
        """
        for request in view.waiting:
            yield request
            if admission.refusal is Refusal.ADAPTERS:
                yield from view.waiting.among(admission.adapters, after=request)
                return
