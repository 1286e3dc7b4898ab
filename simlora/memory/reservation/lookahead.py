"""The rule of another reservation, with slots for tokens that are proposed and not accepted yet."""

from __future__ import annotations

from simlora.core.request import Request
from simlora.memory.reservation.base import UNLIMITED, Reservation


class Lookahead(Reservation):
    """Every request takes `tokens` slots more than by `rule`: verification writes the KV of all that is proposed.

    Source: vLLM's V1 engine, whose `KVCacheManager.allocate_slots` takes `num_lookahead_tokens`.
    """

    __slots__ = ("_tokens", "grows", "rule")

    def __init__(self, rule: Reservation, tokens: int) -> None:
        super().__init__(rule.capacity)
        self.rule, self._tokens = rule, tokens
        self.grows = rule.grows

    def begin(self, step: int) -> None:
        self.rule.begin(step)

    def fits(self, context: int, to_come: int, beside_tokens: int) -> bool:
        return self.rule.fits(context + self._tokens, to_come, beside_tokens)

    def retry_steps(self) -> int:
        return self.rule.retry_steps()

    def add(self, request: Request, context: int, to_come: int, step: int) -> None:
        self.rule.add(request, context + self._tokens, to_come, step)

    def advance(self, request: Request, tokens: int, step: int) -> None:
        self.rule.advance(request, tokens, step)

    def remove(self, request: Request, step: int) -> None:
        self.rule.remove(request, step)

    def held_tokens(self, request: Request, step: int) -> int:
        return self.rule.held_tokens(request, step)

    def used_tokens(self, step: int) -> int:
        return self.rule.used_tokens(step)

    def peak_tokens(self, step: int) -> int:
        return self.rule.peak_tokens(step)

    def steps_until_full(self, free_tokens: int, step: int, most: int = UNLIMITED) -> int:
        return self.rule.steps_until_full(free_tokens, step, most)
