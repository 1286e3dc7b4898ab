"""Prompts that are prefilled in chunks, over several iterations."""

from __future__ import annotations

from collections.abc import Sequence

from simlora.core.request import Request
from simlora.engine.replica.decode_window import DecodeWindow
from simlora.engine.replica.part import Part
from simlora.engine.replica.replica import Replica
from simlora.engine.replica.request_table import RequestStatus
from simlora.engine.replica.scheduler_view import SchedulerView
from simlora.policies.scheduling.base import SchedulerOutput


class ChunkedPrefill(Part):
    """Keeps the requests of which a part is prefilled (PREFILLING), with their seat and memory."""

    def __init__(self, replica: Replica) -> None:
        self._replica, self._table = replica, replica.table
        self._prefilling = replica.table.held[RequestStatus.PREFILLING]
        self._schedule, replica.ask = replica.ask, self.ask
        self._skipped = 0
        self._table.stops[RequestStatus.PREFILLING] = self.stop

    def ask(self, view: SchedulerView) -> SchedulerOutput:
        """Ask the scheduler, and end the decode window if it now skips another number of requests at every step."""
        output = self._schedule(view)
        if output.skipped != self._skipped:
            self._skipped = output.skipped
            self._table.end_window()
        return output

    def before_admit(self, requests: Sequence[Request]) -> Sequence[Request]:
        prefilling = self._prefilling
        return [request for request in requests if request.id not in prefilling] if prefilling else requests

    def on_prefilled(self, requests: Sequence[Request], chunks: Sequence[int]) -> Sequence[Request]:
        if not chunks:
            return requests
        return [request for place, request in enumerate(requests) if self._completes(request, chunks[place])]

    def _completes(self, request: Request, tokens: int) -> bool:
        """Count a chunk of a prompt; return whether that completes it."""
        request.chunked_tokens += tokens
        if request.prefill_tokens:
            self._table.set_status(request, RequestStatus.PREFILLING)
            return False
        request.chunked_tokens = 0
        self._table.clear_status(request, RequestStatus.PREFILLING)
        return True

    def before_last_step(self, window: DecodeWindow, steps: int, now_s: float) -> None:
        for request in self._prefilling.values():
            self._table.kv.hold_growth(request, self._table.batch.step + 1)

    def stop(self, request: Request, now_s: float) -> bool:
        """A request is taken away; its prefill starts again."""
        self._table.clear_status(request, RequestStatus.PREFILLING)
        request.chunked_tokens = 0
        return False
