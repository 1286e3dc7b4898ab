"""How clients behave: they wait for a turn, leave when no answer begins, and try again."""

from __future__ import annotations

from dataclasses import dataclass

from simlora.core.checks import number, whole
from simlora.core.errors import InputError

MOST_RETRY_AFTER_S = 120.0


@dataclass(frozen=True, kw_only=True)
class Clients:
    """What clients do beside sending each request of the workload at its arrival.

    `outstanding` calls are open at once at most, waits before retries included, and others wait until one has ended and
    `think_s` has passed: a closed loop, as load generators have it (`vllm bench serve --max-concurrency`); None: no
    limit. A client abandons a request `patience_s` after it was sent without a first token by then; None: never. What
    was rejected, aborted or abandoned is sent again, up to `retries` times. Before retry number n a client waits for
    min(`backoff_s` 2^(n - 1), `backoff_most_s`), less a random share of it, `backoff_jitter` at most; or as long as the
    rate limit told it (`Retry-After`). Where that is more than MOST_RETRY_AFTER_S, it does not try again.
    Source: the waits are those of the openai package for Python, version 3.57 (`_base_client.py`, `_constants.py`):
    0.5 s, 8 s at most, a jitter of a quarter, `Retry-After` up to two minutes; its clients retry twice, and leave after
    600 s.
    Differs: a request that no replica could ever serve is not sent again, as its answer is HTTP 400 there.
    """

    outstanding: int | None = None
    think_s: float = 0.0
    patience_s: float | None = None
    retries: int = 0
    backoff_s: float = 0.5
    backoff_most_s: float = 8.0
    backoff_jitter: float = 0.25

    def __post_init__(self) -> None:
        if self.outstanding is not None:
            whole("clients.outstanding", self.outstanding, "requests", least=1)
        number("clients.think_s", self.think_s, "seconds", least=0)
        if self.patience_s is not None:
            number("clients.patience_s", self.patience_s, "seconds", above=0)
        whole("clients.retries", self.retries, least=0)
        number("clients.backoff_s", self.backoff_s, "seconds", least=0)
        number("clients.backoff_most_s", self.backoff_most_s, "seconds", least=0)
        number("clients.backoff_jitter", self.backoff_jitter, least=0, most=1)
        if self.think_s and self.outstanding is None:
            raise InputError(
                "clients.think_s is between the requests of a closed loop, which clients.outstanding makes"
            )

    @property
    def react(self) -> bool:
        """Whether what clients do depends on what becomes of their requests."""
        return self.outstanding is not None or self.patience_s is not None or self.retries > 0

    def backoff(self, retry: int, drawn: float) -> float:
        """Return the seconds before a retry, the first is 1; `drawn` is from 0 to 1."""
        # Not 2^n, which a float cannot hold for a client that never gives up.
        wait_s = self.backoff_s
        for _ in range(retry - 1):
            if wait_s >= self.backoff_most_s:
                break
            wait_s *= 2
        return min(wait_s, self.backoff_most_s) * (1.0 - self.backoff_jitter * drawn)
