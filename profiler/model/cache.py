"""Keys and values in pages of PAGE_TOKENS tokens, which lie anywhere in the cache."""

from __future__ import annotations

import torch

from simlora.core.errors import InputError
from simlora.hardware.model import ModelShape

PAGE_TOKENS = 16
"""As many as vLLM takes."""


class KvCache:
    """`keys` and `values` [layers, pages, PAGE_TOKENS, kv_heads, head_dim]; each sequence owns whole pages.

    Pages are handed out in a shuffled order, so that no sequence has its own in a row.
    """

    def __init__(
        self, shape: ModelShape, tokens: int, dtype: torch.dtype, device: torch.device, seed: int = 0
    ) -> None:
        self.pages = -(-tokens // PAGE_TOKENS)
        size = (shape.layers, self.pages, PAGE_TOKENS, shape.kv_heads, shape.head_dim)
        self.keys = torch.zeros(size, dtype=dtype, device=device)
        self.values = torch.zeros(size, dtype=dtype, device=device)
        order = torch.randperm(self.pages, generator=torch.Generator().manual_seed(seed))
        self.free: list[int] = order.tolist()
        self._owned: dict[int, list[int]] = {}

    def grow(self, sequence: int, tokens: int) -> None:
        """Let a sequence have room for that many tokens. Raises InputError when there is none."""
        owned = self._owned.setdefault(sequence, [])
        while len(owned) * PAGE_TOKENS < tokens:
            if not self.free:
                raise InputError(
                    f"a KV cache of {self.pages * PAGE_TOKENS} tokens is too small for this batch"
                )
            owned.append(self.free.pop())

    def drop(self, sequence: int) -> None:
        """Take a sequence's pages back."""
        self.free += reversed(self._owned.pop(sequence))

    def table(self, sequence: int) -> list[int]:
        """Return a sequence's pages, in the order of its tokens."""
        return self._owned[sequence]

    def slots(self, sequence: int, first: int, end: int) -> list[int]:
        """Return where tokens first to end of a sequence lie, counted in tokens from the start of the cache."""
        owned = self._owned[sequence]
        return [owned[at // PAGE_TOKENS] * PAGE_TOKENS + at % PAGE_TOKENS for at in range(first, end)]
