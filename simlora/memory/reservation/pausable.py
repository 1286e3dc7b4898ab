"""The rule of another reservation, for requests that can be paused."""

from __future__ import annotations

from simlora.core.request import Request
from simlora.memory.reservation.base import UNLIMITED, Reservation


class Pausable(Reservation):
    """A paused request keeps the slots that it holds and takes no more; `rule` applies to all the others.

    `paused_tokens` are the slots of the paused requests.
    """

    __slots__ = ("_paused", "grows", "paused_tokens", "rule")

    def __init__(self, rule: Reservation) -> None:
        super().__init__(rule.capacity)
        self.rule = rule
        self.grows = rule.grows
        self._paused: dict[int, int] = {}  # slots by request
        self.paused_tokens = 0

    def pause(self, request: Request, step: int) -> None:
        """A request keeps what it holds, and takes no more."""
        tokens = self.rule.held_tokens(request, step)
        self.rule.remove(request, step)
        self._paused[request.id] = tokens
        self.paused_tokens += tokens

    def begin(self, step: int) -> None:
        self.rule.begin(step)

    def fits(self, context: int, to_come: int, beside_tokens: int) -> bool:
        return self.rule.fits(context, to_come, beside_tokens)

    def retry_steps(self) -> int:
        return self.rule.retry_steps()

    def add(self, request: Request, context: int, to_come: int, step: int) -> None:
        self.rule.add(request, context, to_come, step)

    def advance(self, request: Request, tokens: int, step: int) -> None:
        self.rule.advance(request, tokens, step)

    def remove(self, request: Request, step: int) -> None:
        if request.id in self._paused:
            self.paused_tokens -= self._paused.pop(request.id)
        else:
            self.rule.remove(request, step)

    def held_tokens(self, request: Request, step: int) -> int:
        found = self._paused.get(request.id)
        return self.rule.held_tokens(request, step) if found is None else found

    def used_tokens(self, step: int) -> int:
        return self.rule.used_tokens(step) + self.paused_tokens

    def peak_tokens(self, step: int) -> int:
        return self.rule.peak_tokens(step) + self.paused_tokens

    def steps_until_full(self, free_tokens: int, step: int, most: int = UNLIMITED) -> int:
        return self.rule.steps_until_full(free_tokens, step, most)
