"""The nodes of a prefix tree: adapters (branches), and below them segments of consecutive blocks."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from math import inf

from mypy_extensions import i64

from simlora.core.request import Request
from simlora.core.trace import BASE_MODEL
from simlora.memory.order import GreatestFirst


class Chain:
    """The whole blocks of a request's first `tokens` tokens: `count` of them, by their `hashes`, or by number.

    Without hashes the first block is that of the session, whose earlier tokens the request begins with.
    """

    __slots__ = ("count", "hashes", "session")

    def __init__(self, request: Request, tokens: i64, block_size: i64) -> None:
        self.hashes, self.session = request.block_hashes, request.session
        self.count: i64 = 0
        if self.hashes:
            self.count = min(min(tokens, request.prompt_tokens) // block_size, len(self.hashes))
        elif self.session is not None:
            self.count = tokens // block_size

    def key(self, at: i64) -> Hashable:
        """Return the key of a segment that begins with the block at this place."""
        if self.hashes:
            return self.hashes[at]
        return at if at else self.session

    def alike(self, other: Chain) -> i64:
        """Return how many of its leading blocks another chain of the same adapter begins with too."""
        most = min(self.count, other.count)
        if not self.hashes or not other.hashes:
            return most if not self.hashes and self.session == other.session else 0
        pairs = zip(self.hashes[:most], other.hashes, strict=False)
        return next((i for i, (own, theirs) in enumerate(pairs) if own != theirs), most)


class Node:
    """A node that is `resident`, in HBM or in flight to it until `ready_s`, or else on the host.

    `resident_children` is the number of child segments in HBM; `outside` orders the child segments on the host by
    worth, if a frontier is kept.
    """

    __slots__ = ("children", "outside", "ready_s", "resident", "resident_children", "used_s", "visits")

    def __init__(self, resident: bool) -> None:
        self.children: dict[Hashable, Segment] = {}
        self.outside: GreatestFirst[Segment] | None = None
        self.resident = resident
        self.resident_children: i64 = 0
        self.ready_s = 0.0
        self.used_s = 0.0
        self.visits: i64 = 0


class Branch(Node):
    """An adapter, or the base model, with all KV computed with it; `tokens` of that KV are in HBM."""

    __slots__ = ("adapter_id", "tokens")

    def __init__(self, adapter_id: int) -> None:
        super().__init__(resident=adapter_id == BASE_MODEL)
        self.adapter_id = adapter_id
        self.tokens: i64 = 0


class Segment(Node):
    """The KV of `count` consecutive blocks after those of `parent`, which has it under `key`; `users` requests hold it.

    If it comes from the host, it was there from `host_s` on. So many waiting requests are to begin with it: `awaited`.

    Its first block has so many `before` it. Blocks that have `hashes` are those, others are numbers.
    `mark` lets a caller count a segment once; both parts of a segment that is cut have it.
    `copied_s`: when a copy of it was or will be on the host, though it is in HBM; inf: it is copied when it leaves.
    `ends_match`: what a request was found to begin with has ended here, and what lies behind stays apart.
    """

    __slots__ = (
        "awaited",
        "before",
        "branch",
        "copied_s",
        "count",
        "ends_match",
        "hashes",
        "host_s",
        "key",
        "mark",
        "parent",
        "users",
    )

    def __init__(
        self,
        parent: Node,
        branch: Branch,
        key: Hashable,
        before: i64,
        count: i64,
        hashes: tuple[int, ...] = (),
        resident: bool = True,
    ) -> None:
        super().__init__(resident)
        self.parent, self.branch, self.key = parent, branch, key
        self.before, self.count, self.hashes = before, count, hashes
        self.users: i64 = 0
        self.mark: i64 = 0
        self.awaited: i64 = 0
        self.host_s = 0.0
        self.copied_s = inf
        self.ends_match = False

    @property
    def blocks(self) -> Sequence[int]:
        """The blocks: their hashes, or their numbers."""
        return self.hashes or range(self.before, self.before + self.count)

    def alike(self, chain: Chain) -> i64:
        """Return how many of its leading blocks a chain has too, at the same places."""
        most = chain.count - self.before
        if most > self.count:
            most = self.count
        if not self.hashes:
            return most
        theirs = chain.hashes[self.before : self.before + most]
        if self.hashes[:most] == theirs:
            return most
        return next(
            i for i, (own, other) in enumerate(zip(self.hashes, theirs, strict=False)) if own != other
        )
