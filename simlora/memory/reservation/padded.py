"""Reserve for every request as many slots as for the longest of its batch."""

from __future__ import annotations

from simlora.core.request import Request
from simlora.memory.reservation.base import UNLIMITED, Reservation


class PaddedKv(Reservation):
    """Every request takes as much as the longest prompt and the longest output of the batch.

    There is no paging and no growth: a batch that starts together has key and value tensors of one shape, which shrink
    when a request leaves (HuggingFace Transformers).
    """

    __slots__ = ("_context", "_count", "_to_come", "_trial")

    def __init__(self, capacity: int) -> None:
        super().__init__(capacity)
        self._count = self._context = self._to_come = 0
        self._trial = (0, 0, 0)

    def begin(self, step: int) -> None:
        self._trial = self._count, self._context, self._to_come

    def fits(self, context: int, to_come: int, beside_tokens: int) -> bool:
        count, longest_context, longest_to_come = self._trial
        trial = count + 1, max(longest_context, context), max(longest_to_come, to_come)
        if trial[0] * (trial[1] + trial[2]) > self.capacity - beside_tokens:
            return False
        self._trial = trial
        return True

    def add(self, request: Request, context: int, to_come: int, step: int) -> None:
        self._count += 1
        self._context = max(self._context, context)
        self._to_come = max(self._to_come, to_come)

    def remove(self, request: Request, step: int) -> None:
        self._count -= 1
        if not self._count:
            self._context = self._to_come = 0

    def held_tokens(self, request: Request, step: int) -> int:
        return self._context + self._to_come

    def used_tokens(self, step: int) -> int:
        return self._count * (self._context + self._to_come)

    def steps_until_full(self, free_tokens: int, step: int, most: int = UNLIMITED) -> int:
        return UNLIMITED
