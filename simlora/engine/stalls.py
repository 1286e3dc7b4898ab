"""What requests lose to weights and KV on their way: to their own, and standing still because of others'."""

from __future__ import annotations

from collections.abc import Container, Sequence

from simlora.core.request import Request
from simlora.engine.incoming import Incoming


class Stalls:
    """Adds to the cold starts and to the `blocked_s` of one replica's requests.

    `batch_s` is how long its batch has stood still, all times together. A request is charged the growth of `batch_s`
    between joining and leaving the batch.
    """

    __slots__ = ("_incoming", "batch_s")

    def __init__(self, incoming: Incoming) -> None:
        self._incoming = incoming
        self.batch_s = 0.0

    def waited(self, request: Request, seconds: float, now_s: float) -> None:
        """A request has waited for its own weights, and its KV: before it began, or once more after it was put back."""
        if request.admitted_s >= 0.0:
            request.blocked_s += seconds
            return
        until_s = min(now_s, self._incoming.ready_s(request))
        for_kv_s = min(max(until_s - self._incoming.lands_s(request), 0.0), seconds)
        request.kv_cold_start_s += for_kv_s
        request.cold_start_s += seconds - for_kv_s

    def broke_off(self, request: Request, now_s: float, assisted: bool) -> None:
        """A request waits no longer for its own KV and, unless CPU cores stand in, weights: its replica fails.

        All of its wait was counted when it was admitted.
        """
        lands_s = max(self._incoming.lands_s(request), now_s)
        if not assisted:
            request.cold_start_s -= lands_s - now_s
        request.kv_cold_start_s -= max(self._incoming.ready_s(request) - lands_s, 0.0)

    def stands_still(self, requests: Sequence[Request], from_s: float, until_s: float) -> None:
        """The replica has stood still for weights: whose it was not, and the batch, could have run."""
        self.batch_s += until_s - from_s
        for request in requests:
            request.blocked_s += until_s - min(max(from_s, self._incoming.lands_s(request)), until_s)

    def assisted(
        self,
        prefill: Sequence[Request],
        helped: Container[Request],
        start_s: float,
        begin_s: float,
        longer_s: float,
    ) -> None:
        """A prefill with the help of CPU cores began later, because of those without, and took so much longer."""
        if begin_s > start_s:
            self.stands_still([request for request in prefill if request not in helped], start_s, begin_s)
            for request in prefill:
                if request in helped:
                    request.blocked_s += begin_s - start_s
        self.batch_s += longer_s
        for request in prefill:
            request.blocked_s += longer_s
