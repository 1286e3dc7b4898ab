"""The verb `admit`: who could start now, beside the running batch."""

from __future__ import annotations

from simlora.core.request import Request
from simlora.memory.pool import Pool
from simlora.memory.reservation import UNLIMITED, Reservation


class Admission:
    """One trial: batch size, prefill tokens and memory, candidate after candidate.

    The slots of an adapter count once, from its first candidate on. A preempted request may
    exceed the prefill tokens when it is the only candidate: it has grown since it was accepted.
    """

    __slots__ = (
        "_adapter_tokens",
        "_adapters",
        "_alone",
        "_pool",
        "_reservation",
        "_seats",
        "_tokens",
        "refused_for_memory",
    )

    def __init__(self, reservation: Reservation, pool: Pool, step: int, seats: int, tokens: int) -> None:
        self._reservation = reservation
        self._pool = pool
        self._seats = seats
        self._tokens = tokens
        self._adapter_tokens = pool.pinned_tokens
        self._adapters: set[int] = set()
        self._alone = True
        self.refused_for_memory = False
        reservation.begin(step)

    def admit(self, request: Request) -> bool:
        """Whether it fits; one that does takes its seat, tokens and memory in this trial."""
        tokens = request.prefill_tokens
        if self._seats < 1 or (tokens > self._tokens and not (request.preemptions and self._alone)):
            return False
        adapter = request.adapter
        fresh = adapter is not None and adapter.id not in self._adapters and not self._pool.is_pinned(adapter)
        adapter_tokens = self._adapter_tokens + (adapter.kv_tokens if fresh and adapter is not None else 0)
        context = request.prompt_tokens + request.generated_tokens + 1
        to_come = request.max_output_tokens - request.generated_tokens - 1
        if not self._reservation.fits(context, to_come, adapter_tokens):
            self.refused_for_memory = True
            return False
        self._alone = False
        self._seats -= 1
        self._tokens -= tokens
        if fresh and adapter is not None:
            self._adapters.add(adapter.id)
            self._adapter_tokens = adapter_tokens
        return True

    def retry_steps(self) -> int:
        """Decode steps before which the last refused request cannot fit, unless somebody leaves."""
        return self._reservation.retry_steps() if self.refused_for_memory else UNLIMITED
