"""Sums over the requests that a replica has been given and has not done, as routers read them."""

from __future__ import annotations

from simlora.core.request import Request

SUMS = ("requests", "prompt_tokens", "lora_requests", "lora_tokens", "rank_sum", "token_rank_sum")
"""What adds up over a replica's requests; `lora_tokens` counts prompts, `token_rank_sum` adds rank × prompt tokens."""


class ReplicaLoad:
    """Some of one replica's requests, summed; a request that comes or goes costs O(1), the last of a rank O(ranks).

    A preempted request counts with its prompt. `held_tokens` are prompts and declared outputs, and each adapter once,
    in token slots. `adapters` are distinct, and `max_rank` is the highest of their ranks. `full_batches` are those of
    `batch_size` requests for one adapter, or for the base model, that the requests make up. `users` counts requests by
    adapter id. `version` is another number once any of this has changed.
    """

    __slots__ = (
        "_ranks",
        "adapters",
        "batch_size",
        "full_batches",
        "held_tokens",
        "lora_requests",
        "lora_tokens",
        "max_rank",
        "prompt_tokens",
        "rank_sum",
        "requests",
        "token_rank_sum",
        "users",
        "version",
    )

    def __init__(self, batch_size: int) -> None:
        self.batch_size = batch_size
        self.requests = self.prompt_tokens = self.lora_requests = self.lora_tokens = 0
        self.rank_sum = self.token_rank_sum = self.max_rank = self.adapters = 0
        self.held_tokens = self.full_batches = self.version = 0
        self.users: dict[int, int] = {}
        self._ranks: dict[int, int] = {}  # requests by rank

    def copy(self) -> ReplicaLoad:
        """Return a snapshot, to be read."""
        found = ReplicaLoad(self.batch_size)
        found.requests, found.prompt_tokens = self.requests, self.prompt_tokens
        found.lora_requests, found.lora_tokens = self.lora_requests, self.lora_tokens
        found.rank_sum, found.token_rank_sum = self.rank_sum, self.token_rank_sum
        found.max_rank, found.adapters = self.max_rank, self.adapters
        found.held_tokens, found.full_batches, found.version = (
            self.held_tokens,
            self.full_batches,
            self.version,
        )
        found.users = self.users.copy()
        return found

    def change(self, request: Request, by: int) -> None:
        """Count a request (`by` 1), or no longer (-1)."""
        tokens, adapter, users, id = request.prompt_tokens, request.adapter, self.users, request.adapter_id
        self.version += 1
        self.requests += by
        self.prompt_tokens += by * tokens
        self.held_tokens += by * (tokens + request.max_output_tokens)
        left = users.get(id, 0) + by
        if left:
            users[id] = left
        else:
            del users[id]
        most = left if by > 0 else left + 1  # of before and after
        if most % self.batch_size == 0:
            self.full_batches += by
        if adapter is None:
            return
        rank, ranks = adapter.rank, self._ranks
        self.lora_requests += by
        self.lora_tokens += by * tokens
        self.rank_sum += by * rank
        self.token_rank_sum += by * tokens * rank
        if most == 1:
            self.adapters += by
            self.held_tokens += by * adapter.kv_tokens
        left = ranks.get(rank, 0) + by
        if left:
            ranks[rank] = left
            self.max_rank = max(self.max_rank, rank)
        else:
            del ranks[rank]
            self.max_rank = max(ranks, default=0)
