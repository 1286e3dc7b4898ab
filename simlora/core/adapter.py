"""A LoRA adapter as a replica sees it."""

from __future__ import annotations

from dataclasses import dataclass

RANK_MAX = 1024
"""Largest rank accepted from input; published adapters stay at or below 256."""


@dataclass(frozen=True, slots=True)
class Adapter:
    """One LoRA adapter and its size.

    `size_bytes` is the adapter's weights on all of a replica's GPUs together (S-LoRA's tensor
    parallelism shards them, so each GPU holds size_bytes / tp).
    `kv_tokens` is the same size in token slots of the unified pool: 4 * rank for q, k, v, o
    without grouped-query attention. Source: S-LoRA (MLSys'24) §5.1.
    """

    id: int
    name: str
    rank: int
    size_bytes: int
    kv_tokens: int
