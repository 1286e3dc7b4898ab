"""What one iteration of chunked prefill may process: so many tokens, or as many as it has time for."""

from __future__ import annotations

from typing import Protocol

from simlora.core.request import Request
from simlora.policies.views import ReplicaView


class Budget(Protocol):
    """It is spent as prefills take from it, one after the other."""

    @property
    def spent(self) -> bool:
        """Whether nobody gets anything more."""
        ...

    def take(self, request: Request) -> int:
        """Return how many tokens of a request's prefill go into the iteration; 0: none, and it waits."""
        ...


class TokenBudget:
    """So many tokens."""

    def __init__(self, tokens: int) -> None:
        self.left = max(tokens, 0)

    @property
    def spent(self) -> bool:
        return self.left == 0

    def take(self, request: Request) -> int:
        tokens = min(request.prefill_tokens, self.left)
        self.left -= tokens
        return tokens


class TimeBudget:
    """As many of so many tokens as end within `pass_s` seconds, with the step of the running batch beside them.

    A replica where nobody runs prefills in any case. Between one token of a request and all of them its time is taken
    to be linear: attention's squares make it less, so no pass takes longer.
    """

    def __init__(self, view: ReplicaView, tokens: int, pass_s: float) -> None:
        self._view, self._left, self._pass_s = view, max(tokens, 0), pass_s
        self._requests: list[Request] = []
        self._chunks: list[int] = []

    @property
    def spent(self) -> bool:
        return self._left == 0

    def take(self, request: Request) -> int:
        tokens = self._in_time(request, min(request.prefill_tokens, self._left))
        self._left = self._left - tokens if tokens == request.prefill_tokens else 0
        self._requests.append(request)
        self._chunks.append(tokens)
        return tokens

    def _in_time(self, request: Request, tokens: int) -> int:
        """Return how many of so many tokens there is time for."""
        if not tokens or (all_s := self._with(request, tokens)) <= self._pass_s:
            return tokens
        one_s = self._with(request, 1)
        if one_s <= self._pass_s:
            return 1 + int((tokens - 1) * (self._pass_s - one_s) / (all_s - one_s))
        return 0 if self._view.running or self._requests else tokens

    def _with(self, request: Request, tokens: int) -> float:
        """Return what a pass takes with so many tokens of a further request."""
        return self._view.pass_s((*self._requests, request), (*self._chunks, tokens))
