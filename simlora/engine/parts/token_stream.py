"""Tokens told one by one, as a live server needs them."""

from __future__ import annotations

from collections.abc import Callable

from simlora.core.request import Request
from simlora.engine.replica.decode_window import DecodeWindow
from simlora.engine.replica.part import Part
from simlora.engine.replica.replica import Replica

OnToken = Callable[[Request, int, float], None]
"""Hears of a request's token: which one, from 1 on, and when it came."""


class TokenStream(Part):
    """Tells every token when it comes: each decode step has its own boundary, at the time that it has anyway."""

    __slots__ = ("_batch", "_on_token")

    def __init__(self, replica: Replica, on_token: OnToken) -> None:
        self._batch, self._on_token = replica.table.batch, on_token

    def steps(self, most: int) -> int:
        return min(most, 1)

    def after_prefill(self, request: Request, now_s: float) -> None:
        self._on_token(request, request.generated_tokens + 1, now_s)

    def before_last_step(self, window: DecodeWindow, steps: int, now_s: float) -> None:
        batch = self._batch
        for ahead in range(1 - steps, 1):  # several only if the clock has stopped
            token_s = window.end_s(window.stop + ahead)
            for request in batch:
                self._on_token(request, batch.generated(request) + ahead + 1, token_s)
