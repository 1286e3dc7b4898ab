"""Reserve at admission all slots that a request may ever need."""

from __future__ import annotations

from simlora.core.request import Request
from simlora.memory.reservation.base import UNLIMITED, Reservation


class Full(Reservation):
    """A request takes its prompt and its declared output, from admission to its end."""

    __slots__ = ("_trial", "_used")

    def __init__(self, capacity: int) -> None:
        super().__init__(capacity)
        self._used = 0
        self._trial = 0

    def begin(self, step: int) -> None:
        self._trial = self._used

    def fits(self, context: int, to_come: int, beside_tokens: int) -> bool:
        need = self._trial + context + to_come
        if need > self.capacity - beside_tokens:
            return False
        self._trial = need
        return True

    def add(self, request: Request, context: int, to_come: int, step: int) -> None:
        request.held_offset = context + to_come
        self._used += context + to_come

    def remove(self, request: Request, step: int) -> None:
        self._used -= request.held_offset

    def held_tokens(self, request: Request, step: int) -> int:
        return request.held_offset

    def used_tokens(self, step: int) -> int:
        return self._used

    def steps_until_full(self, free_tokens: int, step: int, most: int = UNLIMITED) -> int:
        return UNLIMITED
