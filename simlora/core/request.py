"""A request as a serving system knows it, from its arrival until its last token."""

from __future__ import annotations

from operator import attrgetter

from mypy_extensions import mypyc_attr

from simlora.core.adapter import Adapter
from simlora.core.trace import BASE_MODEL

arrival_order = attrgetter("arrival_s", "id")
"""The sort key of requests: (arrival, id)."""


@mypyc_attr(acyclic=True)  # many are made, none is part of a cycle: nothing to collect
class Request:
    """One prompt for one adapter, and its progress.

    A real system does not know how many tokens a request will produce, so neither does this
    object: the true output length stays inside the engine and policies see only the declared
    `max_output_tokens`. `adapter` is None for the base model, whose `adapter_id` is BASE_MODEL.

    `generated_tokens` counts the tokens produced before the request last (re)joined the waiting queue; while it runs,
    the replica's step counter has the rest. `host_tokens` is the part of its context whose KV was swapped out to host
    memory at its preemption, `chunked_tokens` the part of an incomplete prefill that iterations have processed,
    `cached_tokens` the prefix found in the cache at the last admission trial, and `padding_tokens` what is added to its
    prompt in a batch padded to its longest.

    `cold_start_s` is the time it waited for its own adapter before it began, and `kv_cold_start_s` the further wait for
    KV from the host. `blocked_s` is the other time lost to adapters in flight: stalls because of other requests'
    adapters, and because of its own where the CPU assists. While the request runs, `blocked_s` is a partial sum that
    the engine completes later.

    The engine keeps here what it would otherwise look up by request: `context_offset` is the context in the running
    batch less the batch's step; `held_offset` and `held_until` are its KV as charged by the reservation
    (memory/reservation); `token_s` is the time of its last token while it is not in the batch, or has just joined it.
    """

    __slots__ = (
        "adapter",
        "adapter_id",
        "admitted_s",
        "arrival_s",
        "block_hashes",
        "blocked_s",
        "cached_tokens",
        "chunked_tokens",
        "cold_start_s",
        "context_offset",
        "first_token_s",
        "generated_tokens",
        "held_offset",
        "held_until",
        "host_tokens",
        "id",
        "kv_cold_start_s",
        "max_output_tokens",
        "migrations",
        "padding_tokens",
        "preemptions",
        "prompt_tokens",
        "session",
        "token_s",
    )

    def __init__(
        self,
        id: int,
        adapter: Adapter | None,
        arrival_s: float,
        prompt_tokens: int,
        max_output_tokens: int,
        session: str | None = None,
        block_hashes: tuple[int, ...] = (),
    ) -> None:
        self.id = id
        self.adapter = adapter
        self.adapter_id = BASE_MODEL if adapter is None else adapter.id
        self.arrival_s = arrival_s
        self.prompt_tokens = prompt_tokens
        self.max_output_tokens = max_output_tokens
        self.session = session
        self.block_hashes = block_hashes
        self.generated_tokens = 0
        self.cached_tokens = 0
        self.host_tokens = 0
        self.chunked_tokens = 0
        self.padding_tokens = 0
        self.admitted_s = -1.0
        self.first_token_s = -1.0
        self.cold_start_s = 0.0
        self.kv_cold_start_s = 0.0
        self.blocked_s = 0.0
        self.preemptions = 0
        self.migrations = 0
        self.context_offset = self.held_offset = self.held_until = 0
        self.token_s = 0.0

    @property
    def prefill_tokens(self) -> int:
        """Tokens still to be prefilled.

        The uncached prompt with its padding; after a preemption also the generated tokens. KV on the host and earlier
        chunks are subtracted.
        """
        whole = self.prompt_tokens + self.padding_tokens + self.generated_tokens
        return whole - self.cached_tokens - self.host_tokens - self.chunked_tokens

    @property
    def declared_tokens(self) -> int:
        """The prompt plus the declared maximum output."""
        return self.prompt_tokens + self.max_output_tokens

    @property
    def rank(self) -> int:
        """The adapter's rank; 0 for the base model."""
        return self.adapter.rank if self.adapter is not None else 0

    def __repr__(self) -> str:
        name = self.adapter.name if self.adapter else "base"
        return (
            f"Request({self.id}, {name}, t={self.arrival_s:g}, {self.prompt_tokens}+{self.max_output_tokens})"
        )
