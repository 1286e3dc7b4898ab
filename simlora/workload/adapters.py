"""The adapters of a generated workload."""

from __future__ import annotations

from typing import Any

from simlora.core.adapter import RANK_MAX
from simlora.core.checks import listed, whole
from simlora.core.trace import AdapterSpec

ADAPTERS_MAX = 10_000_000


def check_ranks(ranks: Any, key: str = "workload.ranks") -> tuple[int, ...]:
    """Return the ranks as a tuple. Raises InputError for a rank that no adapter has."""
    entries = listed(key, ranks, "[64,32,16,8]")
    return tuple(whole(f"{key}[{i}]", rank, least=1, most=RANK_MAX) for i, rank in enumerate(entries))


def adapter_specs(adapters: int, ranks: tuple[int, ...]) -> tuple[AdapterSpec, ...]:
    """Return `adapters` adapters; adapter i has rank ranks[i mod len]. Source: S-LoRA's benchmark."""
    return tuple(AdapterSpec(f"adapter_{i}", ranks[i % len(ranks)]) for i in range(adapters))
