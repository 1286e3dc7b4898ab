"""KV kept outside of replicas, for requests that begin with the same tokens of the same adapter."""

from __future__ import annotations

from simlora.core.request import Request
from simlora.memory.prefix_tree import PrefixTree


class StoredPrefixes:
    """Whole blocks in `capacity_tokens`; those used least recently leave first, from the end of what they follow.

    `tokens` are stored. Looking up and adding cost one step per matched segment.
    """

    __slots__ = ("_capacity_tokens", "_tree")

    def __init__(self, block_size: int, capacity_tokens: int) -> None:
        self._tree = PrefixTree(block_size)
        self._capacity_tokens = capacity_tokens

    @property
    def block_size(self) -> int:
        """Tokens of a block."""
        return self._tree.block_size

    @property
    def tokens(self) -> int:
        """Tokens that are stored."""
        return self._tree.tokens

    def found_tokens(self, request: Request, tokens: int) -> int:
        """Return how many of a request's first `tokens` tokens are stored."""
        return self._tree.known_tokens(request, tokens)

    def add(self, request: Request, tokens: int, now_s: float) -> None:
        """Store the whole blocks of a request's first `tokens` tokens, or use those that are stored."""
        self._tree.insert(request, tokens, now_s)
        self._tree.evict(self._tree.tokens - self._capacity_tokens, now_s)
