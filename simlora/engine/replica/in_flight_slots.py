"""Token slots that a copy still reads or writes, though their contents have left HBM."""

from __future__ import annotations

from bisect import insort
from collections import deque

from simlora.memory.adapter_cache import AdapterCache


class InFlightSlots:
    """Copies as (end, slots), the earliest first: slots that count as free at once, but cannot be written yet.

    The copies are of KV on its way to the host, and of KV and adapters that were given up on their way to HBM. `loads`
    are the adapters that may still be given up: when each is there, by id, and in how many slots.
    """

    __slots__ = ("copies", "loads")

    def __init__(self) -> None:
        self.copies: deque[tuple[float, int]] = deque()
        self.loads: dict[int, tuple[float, int]] = {}

    def add(self, until_s: float, tokens: int) -> None:
        """So many slots are read or written until then."""
        insort(self.copies, (until_s, tokens))

    def expect(self, id: int, ready_s: float, tokens: int) -> None:
        """An adapter is being loaded into so many slots."""
        self.loads[id] = ready_s, tokens

    def note_given_up(self, adapters: AdapterCache, now_s: float) -> None:
        """Keep the slots of adapters that were evicted before their load had ended."""
        for id, (ready_s, tokens) in list(self.loads.items()):
            if ready_s > now_s and adapters.holds(id):
                continue
            del self.loads[id]
            if ready_s > now_s:
                self.add(ready_s, tokens)

    def end(self, now_s: float) -> None:
        """Forget the copies that have ended."""
        while self.copies and self.copies[0][0] <= now_s:
            self.copies.popleft()

    def tokens(self, now_s: float) -> int:
        """Return the slots that are in flight after this moment."""
        return sum(tokens for until_s, tokens in self.copies if until_s > now_s)

    def claim_s(self, short: int, now_s: float) -> float:
        """Claim `short` of the slots; return when the last of them can be written."""
        copies = self.copies
        while copies and short > 0:
            now_s, tokens = copies.popleft()
            if tokens > short:
                copies.appendleft((now_s, tokens - short))
            short -= tokens
        return now_s
