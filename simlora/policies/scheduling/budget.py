"""Budgets of one iteration of chunked prefill: a number of tokens, or as many tokens as fit into a time."""

from __future__ import annotations

from abc import abstractmethod

from simlora.core.request import Request
from simlora.policies.views import ReplicaView


class Budget:
    """The prefill tokens that an iteration has `left`; prefills take from it one after another."""

    def __init__(self, tokens: int) -> None:
        self.left = max(tokens, 0)

    @abstractmethod
    def take(self, request: Request) -> int:
        """Take and return how many tokens of a request's prefill go into the iteration; with 0 the request waits."""


class TokenBudget(Budget):
    """A fixed number of tokens."""

    def take(self, request: Request) -> int:
        tokens = min(request.prefill_tokens, self.left)
        self.left -= tokens
        return tokens


class WholePrompts(Budget):
    """A fixed number of tokens, of which a request takes all of its prefill or nothing; the first takes it anyway."""

    def __init__(self, tokens: int) -> None:
        super().__init__(tokens)
        self._taken = False

    def take(self, request: Request) -> int:
        tokens = request.prefill_tokens
        if self._taken and tokens > self.left:
            return 0
        self._taken = True
        self.left = max(self.left - tokens, 0)
        return tokens


class TimeBudget(Budget):
    """At most `tokens`, and as many as let the pass, with the running batch's decode step, end within `pass_s` seconds.

    A replica without running requests prefills in any case. The time between one token of a request and all of them is
    interpolated linearly. Attention is quadratic, so the true time lies below the line and no pass takes longer.
    """

    def __init__(self, view: ReplicaView, tokens: int, pass_s: float) -> None:
        super().__init__(tokens)
        self._view, self._pass_s = view, pass_s
        self._requests: list[Request] = []
        self._chunks: list[int] = []

    def take(self, request: Request) -> int:
        tokens = self._in_time(request, min(request.prefill_tokens, self.left))
        self.left = self.left - tokens if tokens == request.prefill_tokens else 0
        self._requests.append(request)
        self._chunks.append(tokens)
        return tokens

    def _in_time(self, request: Request, tokens: int) -> int:
        """Return for how many of these tokens there is time."""
        if not tokens or (all_s := self._with(request, tokens)) <= self._pass_s:
            return tokens
        one_s = self._with(request, 1)
        if one_s <= self._pass_s:
            return 1 + int((tokens - 1) * (self._pass_s - one_s) / (all_s - one_s))
        return 0 if self._view.running or self._requests else tokens

    def _with(self, request: Request, tokens: int) -> float:
        """Return the seconds of a pass that also has this many tokens of a further request."""
        return self._view.pass_s((*self._requests, request), (*self._chunks, tokens))
