"""The part that reports first tokens, for clients that wait for them."""

from __future__ import annotations

from collections.abc import Callable

from simlora.core.request import Request
from simlora.engine.replica.part import Part
from simlora.engine.replica.replica import Replica


class FirstTokens(Part):
    """Reports each request whose prompt is complete, and so its first token there."""

    def __init__(self, replica: Replica, on_first: Callable[[Request], None]) -> None:
        self._on_first = on_first

    def after_prefill(self, request: Request, now_s: float) -> None:
        self._on_first(request)
