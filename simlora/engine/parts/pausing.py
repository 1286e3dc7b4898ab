"""Requests that the scheduler takes out of the running batch with their KV in HBM, and puts back later."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from simlora.core.request import Request
from simlora.engine.replica.part import Part
from simlora.engine.replica.replica import Replica
from simlora.engine.replica.request_table import RequestStatus
from simlora.engine.scenario import Scenario
from simlora.memory.reservation import Pausable
from simlora.policies.scheduling.base import Pause, Resume, SchedulerOutput


class Pausing(Part):
    """Pauses and resumes requests, and preempts paused ones when others need their memory. Source: dLoRA §4.2.

    A paused request keeps its KV until then, and takes no seat.
    """

    @staticmethod
    def requires(scenario: Scenario) -> Iterator[str]:
        if not scenario.policies.scheduler().pauses:
            return
        if scenario.replica.reserve == "padded":
            yield "replica.reserve is padded, must be full, peak or paged for a scheduler that pauses requests"
        if scenario.replica.own_region:
            yield (
                f"replica.adapter_memory is {scenario.replica.adapter_memory}, must be unified, partition or slots for "
                "a scheduler that pauses requests: their adapters cannot be evicted there"
            )

    def __init__(self, replica: Replica, reservation: Pausable) -> None:
        self._replica, self._table, self._reservation = replica, replica.table, reservation
        replica.actions[Pause], replica.actions[Resume] = self.pause, self.resume
        self._table.stops[RequestStatus.PAUSED] = self.stop

    def pause(self, action: Pause) -> None:
        """Take a member out of the batch with the KV that it has."""
        table, request = self._table, action.request
        # One less than it has: that of its last step is counted when it joins again.
        request.generated_tokens = table.batch.generated(request) - 1
        table.leave_batch(request)
        self._reservation.pause(request, table.batch.step)
        table.set_status(request, RequestStatus.PAUSED)

    def resume(self, action: Resume) -> None:
        """Put a paused request back into the batch."""
        table, request = self._table, action.request
        table.clear_status(request, RequestStatus.PAUSED)
        table.kv.hold_again(request, table.batch.step)
        table.rejoin(request)
        self._replica.record_running()

    def stop(self, request: Request, now_s: float) -> bool:
        """A paused request is taken away; it has been prefilled."""
        self._table.clear_status(request, RequestStatus.PAUSED)
        return True

    def before_admit(self, requests: Sequence[Request]) -> Sequence[Request]:
        """Preempt the paused requests, the last one first, until the new ones fit beside the rest."""
        while self._paused and not all(map(self._replica.view.trial().admit, requests)):
            self._preempt_last()
        return requests

    def ask_again(self, output: SchedulerOutput, now_s: float) -> bool:
        """With nothing to run: after a pause, the scheduler tried the others as long as the paused one still ran.

        Else a trial does not know that KV goes which paused requests share with each other: preempt one of them.
        """
        if any(isinstance(action, Pause) for action in output.actions):
            return True
        if not self._paused or any(part.awaits() for part in self._replica.hooks.parts):
            return False
        self._preempt_last()
        self._replica.loader.admit((), self._table.batch.step, now_s)
        return True

    def _preempt_last(self) -> None:
        last = self._table.last()
        assert last is not None, "a request is paused"
        self._table.preempt(last, self._replica.clock.now)

    @property
    def _paused(self) -> dict[int, Request]:
        return self._table.held[RequestStatus.PAUSED]
