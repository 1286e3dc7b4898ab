"""The time between tokens, and what requests lose to copies: to their own, and standing still because of others'."""

from __future__ import annotations

from collections.abc import Sequence

from simlora.core.request import Request
from simlora.engine.replica.decode_window import DecodeWindow
from simlora.metrics.histogram import TokenGaps


class LatencyStats:
    """Counts the time between tokens (TBT) of one replica's requests, without a row a token, and what they wait for.

    All running requests had their last token at the last decode step, except those that joined since: they had theirs
    at the end of their prefill. The next token of a preempted request comes with its next prefill.
    `stalled_s` is how long the running batch has stood still, all times together. A request is charged the growth of
    `stalled_s` between joining and leaving the batch.
    """

    __slots__ = ("_decoded_s", "_gaps", "_joined", "stalled_s")

    def __init__(self, gaps: TokenGaps) -> None:
        self._gaps = gaps
        self._decoded_s = 0.0
        self._joined: list[Request] = []  # since the last decode step
        self.stalled_s = 0.0

    # Tokens -----------------------------------------------------------------------------

    def joins(self, request: Request, token_s: float) -> None:
        """A request that had its last token then starts to decode."""
        request.token_s = token_s
        request.blocked_s -= self.stalled_s
        self._joined.append(request)

    def rejoins(self, request: Request) -> None:
        """A request that was away from the batch starts to decode again."""
        self.joins(request, request.token_s)

    def leaves(self, request: Request) -> None:
        """A request leaves the batch before it is finished."""
        request.blocked_s += self.stalled_s
        if request in self._joined:
            self._joined.remove(request)
        else:
            request.token_s = self._decoded_s

    def resumed(self, request: Request, now_s: float) -> None:
        """A request that was preempted has its next token."""
        self._gaps.add(now_s - request.token_s, 1)

    def decoded(self, window: DecodeWindow, steps: int, size: int, now_s: float) -> None:
        """A batch of `size` took the next `steps` steps of a window.

        Every gap is a step's length; the first one also what passed since the last token.
        """
        gaps, start_s = self._gaps, window.end_s(window.done) if window.done else window.start_s
        first_s = window.base_s + window.slope_s * window.done
        joined = self._joined
        if not joined and self._decoded_s == start_s:
            gaps.add_run(first_s, window.slope_s, steps, size)
        else:
            others = size - len(joined)
            if others:
                gaps.add_run(start_s - self._decoded_s + first_s, 0.0, 1, others)
            for request in joined:
                gaps.add_run(start_s - request.token_s + first_s, 0.0, 1)
            joined.clear()
            if steps > 1:
                gaps.add_run(first_s + window.slope_s, window.slope_s, steps - 1, size)
        self._decoded_s = now_s

    # Waiting ----------------------------------------------------------------------------

    def waited(
        self, request: Request, seconds: float, now_s: float, weights_s: float, ready_s: float
    ) -> None:
        """A request has waited for its weights, which are there at `weights_s`, and its KV, all there at `ready_s`.

        That is its cold start, unless it waited once more after it had been put back into the queue.
        """
        if request.admitted_s >= 0.0:
            request.blocked_s += seconds
            return
        until_s = min(now_s, ready_s)
        for_kv_s = min(max(until_s - weights_s, 0.0), seconds)
        request.kv_cold_start_s += for_kv_s
        request.cold_start_s += seconds - for_kv_s

    def broke_off(
        self, request: Request, now_s: float, weights_s: float, ready_s: float, assisted: bool
    ) -> None:
        """A request waits no longer, as its replica fails; all of its wait was counted when it was admitted.

        Weights for which CPU cores stand in (`assisted`) were not waited for.
        """
        weights_s = max(weights_s, now_s)
        if not assisted:
            request.cold_start_s -= weights_s - now_s
        request.kv_cold_start_s -= max(ready_s - weights_s, 0.0)

    def stall(
        self, requests: Sequence[Request], own_s: Sequence[float], from_s: float, until_s: float
    ) -> None:
        """The replica stands still for weights; the batch, and each request from `own_s[i]` on, could have run."""
        self.stalled_s += until_s - from_s
        for index, request in enumerate(requests):
            begin_s = own_s[index]
            if begin_s < from_s:
                begin_s = from_s
            if begin_s < until_s:
                request.blocked_s += until_s - begin_s

    def delayed(self, requests: Sequence[Request], seconds: float) -> None:
        """Requests of a prefill could have begun so much earlier than it did."""
        for request in requests:
            request.blocked_s += seconds

    def lengthened(self, requests: Sequence[Request], seconds: float) -> None:
        """A prefill took so much longer, because CPU cores helped some of its requests."""
        self.stalled_s += seconds
        for request in requests:
            request.blocked_s += seconds
