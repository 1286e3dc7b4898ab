"""The part that reports first tokens, and requests that wait, for clients that may leave meanwhile."""

from __future__ import annotations

from collections.abc import Callable

from simlora.core.request import Request
from simlora.engine.replica.part import Part
from simlora.engine.replica.replica import Replica


class FirstTokens(Part):
    """Reports each request that joins the queue, and each whose prompt is complete, and so its first token there."""

    def __init__(
        self, replica: Replica, on_first: Callable[[Request], None], on_wait: Callable[[Request], None]
    ) -> None:
        self._on_first, self._on_wait = on_first, on_wait

    def on_queue(self, request: Request, waits: bool) -> None:
        if waits:
            self._on_wait(request)

    def after_prefill(self, request: Request, now_s: float) -> None:
        self._on_first(request)
