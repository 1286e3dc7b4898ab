"""The limits of one replica, and what of them goes together."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Final

from simlora.core.adapter import RANK_MAX
from simlora.core.checks import choice, number, switch, whole
from simlora.core.errors import InputError

RESERVES = ("full", "peak", "paged", "padded")
PREFIX_RESERVES = ("full", "paged")
"""A peak would have to know when each of those that share KV leaves; padded tensors have nothing to share."""
WRITE_POLICIES = ("write_back", "write_through")
"""SGLang's names (--hicache-write-policy)."""
ADAPTER_MEMORIES = ("unified", "contiguous", "padded", "partition", "slots")
OWN_REGIONS = ("contiguous", "padded")
"""Memory of their own that adapters have to be laid out in."""
HIGHEST = "highest"
DIVIDED = ("partition", "slots")
"""Memory that is divided once and for all between KV and adapters."""
PREEMPTIONS = ("recompute", "swap")
ANY_RANK: Final = 1 << 30
"""More than any adapter's rank: without slots there is no limit."""


@dataclass(frozen=True, kw_only=True)
class ReplicaConfig:
    """Limits of one replica; raises InputError for a value out of its range.

    `kv_token_budget`: token slots of the pool, adapters included. `max_num_seqs`: running
    requests. `max_num_batched_tokens`: uncached prompt tokens of one iteration. `max_wait_tokens`: decode
    steps after a prefill during which the queue is left alone. `reserve`: full, peak, paged or padded.
    `block_size`, `watermark`, `preemption`: for paged. `prefix_caching`: whether KV outlives its request.
    `host_kv_tokens`: of cached KV that leaves HBM, the host keeps so much; 0: it is dropped.
    `host_kv_write_policy`: write_back: KV is copied to the host when its slots are needed; write_through: when it is
    computed, so that they are free at once.
    `target_modules`: what LoRA adapts.
    `max_loras`: distinct adapters in the running batch (vLLM's max_loras); None: no limit.
    `adapter_memory`: unified (in the pool), or `adapter_region_tokens` token slots of their own: contiguous,
    padded, a partition, or in `max_loras` slots that each hold an adapter of up to `max_lora_rank`.
    `max_cpu_loras`: adapters that host memory holds, the least recently used of which makes room for one from
    disk (vLLM's max_cpu_loras); None: all, from the start.
    `adapter_tokens`: token slots that every adapter takes, whatever its rank; None: as many as its weights do;
    "highest": as many as the weights of the highest rank do.
    `full_copies`: whether an adapter is a whole copy of the model, with it merged in beforehand.
    `speculative_tokens`: what a draft proposes of each running request in a step; each takes a slot; 0: nothing.
    `adapter_tokenizers`: whether the front end reads a tokenizer of its own at an adapter's first request.
    """

    kv_token_budget: int
    max_num_seqs: int = 1000
    max_num_batched_tokens: int = 3072
    max_wait_tokens: int = 10
    reserve: str = "peak"
    block_size: int = 16
    watermark: float = 0.01
    preemption: str = "recompute"
    prefix_caching: bool = False
    host_kv_tokens: int = 0
    host_kv_write_policy: str = "write_back"
    target_modules: tuple[str, ...] = ("q", "k", "v", "o")
    tp: int = 1
    adapter_tokenizers: bool = False
    full_copies: bool = False
    adapter_tokens: int | str | None = None
    max_loras: int | None = None
    adapter_memory: str = "unified"
    adapter_region_tokens: int = 0
    max_lora_rank: int | None = None
    max_cpu_loras: int | None = None
    speculative_tokens: int = 0

    @property
    def own_region(self) -> bool:
        """Whether adapters have memory of their own that they have to be laid out in."""
        return self.adapter_memory in OWN_REGIONS

    @property
    def divided(self) -> bool:
        """Whether neither KV nor adapters can use what the other leaves."""
        return self.adapter_memory in DIVIDED

    @property
    def pool_tokens(self) -> int:
        """Token slots of the pool; of a divided one, of both its parts."""
        return self.kv_token_budget + (self.adapter_region_tokens if self.divided else 0)

    @cached_property
    def highest_rank(self) -> int:
        """The highest rank of an adapter that it can serve: `max_lora_rank` where adapters lie in slots, else any."""
        if self.adapter_memory == "slots" and self.max_lora_rank is not None:
            return self.max_lora_rank
        return ANY_RANK

    def holds(self, rank: int) -> bool:
        """Whether it can serve an adapter of that rank."""
        return rank <= self.highest_rank

    @cached_property
    def surely_tokens(self) -> int:
        """Token slots below which a request and its adapter surely fit an empty replica; 0: none are sure."""
        return 0 if self.own_region else self.kv_token_budget - self.block_size - self.speculative_tokens

    @property
    def writes_through(self) -> bool:
        """Whether KV is copied to the host as soon as it is computed."""
        return self.host_kv_tokens > 0 and self.host_kv_write_policy == "write_through"

    @cached_property
    def surely_adapter_tokens(self) -> int:
        """The token slots that its adapter may take for that."""
        return self.adapter_region_tokens if self.divided else self.kv_token_budget

    def __post_init__(self) -> None:
        for name, unit, least in (
            ("kv_token_budget", "token slots", 1),
            ("max_num_seqs", "requests", 1),
            ("max_num_batched_tokens", "tokens", 1),
            ("max_wait_tokens", "decode steps", 0),
            ("block_size", "tokens", 1),
            ("tp", "GPUs", 1),
            ("adapter_region_tokens", "token slots", 0),
            ("host_kv_tokens", "tokens", 0),
            ("speculative_tokens", "tokens", 0),
        ):
            whole(f"replica.{name}", getattr(self, name), unit, least=least)
        for name in ("adapter_tokenizers", "prefix_caching", "full_copies"):
            switch(f"replica.{name}", getattr(self, name))
        if self.full_copies and (self.adapter_memory != "unified" or self.target_modules):
            raise InputError(
                "replica.full_copies is true, which needs replica.adapter_memory=unified and replica.target_modules=[]"
            )
        number("replica.watermark", self.watermark, "of the pool", least=0, most=0.99)
        for name, unit, most in (
            ("max_loras", "adapters", None),
            ("max_lora_rank", "", RANK_MAX),
            ("max_cpu_loras", "adapters", None),
        ):
            if getattr(self, name) is not None:
                whole(f"replica.{name}", getattr(self, name), unit, least=1, most=most)
        if isinstance(self.adapter_tokens, str):
            choice("replica.adapter_tokens", self.adapter_tokens, (HIGHEST,))
        elif self.adapter_tokens is not None:
            whole("replica.adapter_tokens", self.adapter_tokens, "token slots", least=1)
        if self.max_cpu_loras is not None and self.max_cpu_loras < (self.max_loras or 1):
            raise InputError(
                f"replica.max_cpu_loras is {self.max_cpu_loras}, must be at least replica.max_loras, "
                f"which is {self.max_loras}"
            )
        for name, known in (
            ("reserve", RESERVES),
            ("preemption", PREEMPTIONS),
            ("host_kv_write_policy", WRITE_POLICIES),
            ("adapter_memory", ADAPTER_MEMORIES),
        ):
            choice(f"replica.{name}", getattr(self, name), known)
