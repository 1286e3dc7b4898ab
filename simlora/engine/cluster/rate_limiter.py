"""The rate limit of each adapter at the front end of a cluster."""

from __future__ import annotations

from collections.abc import Callable
from math import ceil, inf

from simlora.core.request import Request
from simlora.engine.scenario import ClusterConfig


class RateLimiter:
    """Admits the requests of each adapter at a rate, and rejects the others: a token bucket an adapter.

    A bucket holds `adapter_burst` tokens, is full at first, and gets `adapter_rps` of them a second. A request takes
    one, unless the bucket has none: then the request is rejected, and neither router nor autoscaler hears of it. The
    base model has a bucket as well. Every attempt of a client that retries is a request. What the cluster rejects
    later, such as beyond `max_outstanding`, has taken its token.
    Source: token buckets as gateways have them, such as Envoy's local rate limit (max_tokens, tokens_per_fill,
    fill_interval) with a descriptor for each model; computed as the generic cell rate algorithm (ITU-T I.371), which
    keeps one number an adapter. Differs: tokens come one by one, not some at each interval, and a rejected request is
    told when to come back.
    """

    def __init__(self, config: ClusterConfig) -> None:
        assert config.adapter_rps is not None, "without a rate there is no limit"
        self._gap_s = 1.0 / config.adapter_rps
        self._ahead_s = (config.adapter_burst - 1) * self._gap_s
        self._due_s: dict[int, float] = {}  # by adapter: when its bucket is full again
        self.on_refused: Callable[[Request, int], None] = lambda request, retry_after_s: None
        self._reason = (
            f"cluster.adapter_rps admits {config.adapter_rps:g} requests/s of an adapter, "
            f"{config.adapter_burst} of them at once"
        )

    def refusal(self, request: Request, now_s: float) -> str:
        """Return why a request is rejected; empty if it is admitted, and has taken its token."""
        if self.wait_s(request, now_s) > 1e-9 * self._gap_s:  # rounding aside
            self.on_refused(request, self.retry_after_s(request, now_s))
            return self._reason
        self._due_s[request.adapter_id] = max(self._due_s.get(request.adapter_id, -inf), now_s) + self._gap_s
        return ""

    def retry_after_s(self, request: Request, now_s: float, speed: float = 1.0) -> int:
        """Return what a rejected request is told to wait, in seconds of a clock that runs `speed` times as slowly.

        They are whole and at least 1, as the header `Retry-After` has them (RFC 9110, section 10.2.3).
        """
        return max(ceil(self.wait_s(request, now_s) / speed), 1)

    def wait_s(self, request: Request, now_s: float) -> float:
        """Return after how long the bucket has a token for a request, if no other takes it."""
        return max(self._due_s.get(request.adapter_id, -inf) - now_s - self._ahead_s, 0.0)
