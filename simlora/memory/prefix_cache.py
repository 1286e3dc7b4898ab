"""KV that stays in HBM when its request is gone, for those that begin with the same tokens."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

from simlora.core.request import Request

Home = tuple[int | None, str | None]
"""Whose KV it is: the adapter's, and where blocks are not hashed by what they hold, the session's."""


class Block:
    """The KV of `block_tokens` tokens behind those of the blocks before it; `users` requests hold it."""

    __slots__ = ("hash", "home", "users")

    def __init__(self, home: Home, hash: int) -> None:
        self.home = home
        self.hash = hash
        self.users = 0


class PrefixCache:
    """Whole blocks of `block_tokens` tokens, by adapter: KV made with one adapter is of no use to another.

    Equal hashes mean equal tokens in the block and in all before it. A request without hashes that belongs to a
    session begins with what was said there before, as far as its prompt reaches; its blocks are known by their
    number, those of its output too. Blocks can be found once their request is prefilled. What nobody holds stays
    until its slots are needed; then what was used longest ago goes first, and of a request's blocks the last one,
    so that none is left without the blocks before it.
    Source: vLLM's automatic prefix caching; SGLang (NeurIPS'24) §3, whose tree matches single tokens.
    """

    __slots__ = ("_held", "_homes", "_idle", "_size", "block_tokens")

    def __init__(self, block_tokens: int) -> None:
        self.block_tokens = block_tokens
        self._homes: dict[Home, dict[int, Block]] = {}
        self._held: dict[int, list[Block]] = {}  # by request, from the first token on
        self._idle: OrderedDict[Block, None] = OrderedDict()  # least recently used first
        self._size = 0

    @property
    def tokens(self) -> int:
        """Token slots of all blocks."""
        return self._size * self.block_tokens

    @property
    def held_tokens(self) -> int:
        """Token slots of the blocks that running requests hold, each counted once."""
        return (self._size - len(self._idle)) * self.block_tokens

    def found(self, request: Request) -> list[Block]:
        """Return the cached blocks that a request begins with; one token at least is left to prefill."""
        own_tokens = request.prompt_tokens + request.generated_tokens
        home, hashes = self._chain(request, own_tokens - request.host_tokens - 1)
        blocks = self._homes.get(home)
        found: list[Block] = []
        if blocks:
            for hash in hashes:
                block = blocks.get(hash)
                if block is None:
                    break
                found.append(block)
        return found

    def hold(self, request: Request) -> None:
        """A request starts with the `cached_tokens` that were found for it."""
        held = self.found(request)[: request.cached_tokens // self.block_tokens]
        assert len(held) * self.block_tokens == request.cached_tokens, (
            f"request {request.id} counts on cached KV that has gone"
        )
        for block in held:
            self._use(block)
        self._held[request.id] = held

    def add(self, request: Request, tokens: int) -> None:
        """The KV of a request's first `tokens` tokens is there: it can be found, and is held by the request.

        A block that another request has brought meanwhile is shared, and its copy given up.
        """
        home, hashes = self._chain(request, tokens)
        held = self._held[request.id]
        if len(hashes) <= len(held):
            return
        blocks = self._homes.setdefault(home, {})
        for hash in hashes[len(held) :]:
            block = blocks.get(hash)
            if block is None:
                block = blocks[hash] = Block(home, hash)
                self._size += 1
            self._use(block)
            held.append(block)

    def shared_tokens(self, request: Request) -> int:
        """Tokens of a running request whose KV lies here."""
        return len(self._held[request.id]) * self.block_tokens

    def leave(self, request: Request) -> None:
        """A request is gone; what only it held is idle."""
        for block in reversed(self._held.pop(request.id)):
            block.users -= 1
            if not block.users:
                self._idle[block] = None

    def evict(self, tokens: int) -> None:
        """Give up idle blocks of at least so many tokens, or all."""
        for _ in range(min(-(-tokens // self.block_tokens), len(self._idle))):
            block, _ = self._idle.popitem(last=False)
            blocks = self._homes[block.home]
            del blocks[block.hash]
            if not blocks:
                del self._homes[block.home]
            self._size -= 1

    def _use(self, block: Block) -> None:
        if not block.users:
            self._idle.pop(block, None)
        block.users += 1

    def _chain(self, request: Request, tokens: int) -> tuple[Home, Sequence[int]]:
        """Return where the KV of a request belongs, and the hashes of the whole blocks of its first `tokens`."""
        adapter = request.adapter.id if request.adapter is not None else None
        if request.block_hashes:
            prompt = min(tokens, request.prompt_tokens)
            return (adapter, None), request.block_hashes[: prompt // self.block_tokens]
        if request.session is None:
            return (adapter, None), ()
        return (adapter, request.session), range(tokens // self.block_tokens)
