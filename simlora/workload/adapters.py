"""The adapters of a generated workload."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from simlora.core.adapter import RANK_MAX
from simlora.core.arrays import Ints
from simlora.core.checks import listed, whole
from simlora.core.trace import BASE_MODEL, AdapterSpec

ADAPTERS_MAX = 10_000_000


def check_ranks(ranks: Any, key: str = "workload.ranks") -> tuple[int, ...]:
    """Return the ranks as a tuple. Raises InputError for a rank that no adapter has."""
    entries = listed(key, ranks, "[64,32,16,8]")
    return tuple(whole(f"{key}[{i}]", rank, least=1, most=RANK_MAX) for i, rank in enumerate(entries))


def check_adapters(adapters: Any, ranks: Any, least: int = 1) -> None:
    """Raise InputError for a number of adapters that no workload has, or for ranks that no adapter has."""
    whole("workload.adapters", adapters, "adapters", least=least, most=ADAPTERS_MAX)
    check_ranks(ranks)


def adapter_specs(adapters: int, ranks: Sequence[int]) -> tuple[AdapterSpec, ...]:
    """Return `adapters` adapters; adapter i has rank ranks[i mod len]. Source: S-LoRA's benchmark."""
    given = check_ranks(ranks)
    return tuple(AdapterSpec(f"adapter_{i}", given[i % len(given)]) for i in range(int(adapters)))


def base_model(n: int) -> Ints:
    """Return the adapter of `n` requests that use none [n]."""
    return np.full(n, BASE_MODEL, dtype=np.int64)
