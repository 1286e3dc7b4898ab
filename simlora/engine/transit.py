"""Token slots that a copy still reads or writes, though what was in them has left."""

from __future__ import annotations

from bisect import insort
from collections import deque

from simlora.memory.pool import Pool


class Transit(deque[tuple[float, int]]):
    """(until when, how many slots), the earliest first; they count as free at once, but nobody can write to them yet.

    Of KV on its way to the host, and of KV and adapters that were given up on their way from there. `coming` are the
    adapters that may be yet: when each lands, by id, and in how many slots.
    """

    __slots__ = ("coming",)

    def __init__(self) -> None:
        super().__init__()
        self.coming: dict[int, tuple[float, int]] = {}

    def add(self, until_s: float, tokens: int) -> None:
        """So many slots are read or written until then."""
        insort(self, (until_s, tokens))

    def comes(self, id: int, ready_s: float, tokens: int) -> None:
        """An adapter is on its way into so many slots."""
        self.coming[id] = ready_s, tokens

    def note_given_up(self, pool: Pool, now_s: float) -> None:
        """Adapters may have left before they landed: their slots are written to until they would have."""
        for id, (ready_s, tokens) in list(self.coming.items()):
            if ready_s > now_s and pool.holds(id):
                continue
            del self.coming[id]
            if ready_s > now_s:
                self.add(ready_s, tokens)

    def end(self, now_s: float) -> None:
        """Forget the copies that are done."""
        while self and self[0][0] <= now_s:
            self.popleft()

    def tokens(self, now_s: float) -> int:
        """Slots that are in transit after this moment."""
        return sum(tokens for until_s, tokens in self if until_s > now_s)

    def room_s(self, short: int, now_s: float) -> float:
        """Take so many of the slots; return when the last of them can be written."""
        while self and short > 0:
            now_s, tokens = self.popleft()
            if tokens > short:
                self.appendleft((now_s, tokens - short))
            short -= tokens
        return now_s
