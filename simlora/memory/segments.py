"""The nodes of a prefix tree: adapters (branches), and below them segments of consecutive blocks."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from simlora.core.trace import BASE_MODEL
from simlora.memory.order import Order

Blocks = Sequence[int]


class Node:
    """A node that is `resident`, in HBM or in flight to it until `ready_s`, or else on the host.

    `resident_children` is the number of child segments in HBM; `outside` orders the child segments on the host by
    worth, if a frontier is kept.
    """

    __slots__ = ("children", "outside", "ready_s", "resident", "resident_children", "used_s", "visits")

    def __init__(self, resident: bool) -> None:
        self.children: dict[Hashable, Segment] = {}
        self.outside: Order[Segment] | None = None
        self.resident = resident
        self.resident_children = 0
        self.ready_s = 0.0
        self.used_s = 0.0
        self.visits = 0


class Branch(Node):
    """An adapter, or the base model, with all KV computed with it; `tokens` of that KV are in HBM."""

    __slots__ = ("adapter_id", "tokens")

    def __init__(self, adapter_id: int) -> None:
        super().__init__(resident=adapter_id == BASE_MODEL)
        self.adapter_id = adapter_id
        self.tokens = 0


class Segment(Node):
    """The KV of consecutive blocks after those of `parent`, which has it under `key`; `users` requests hold it.

    `mark` lets a caller count a segment once; both parts of a segment that is cut have it.
    """

    __slots__ = ("blocks", "branch", "key", "mark", "parent", "users")

    def __init__(
        self, parent: Node, branch: Branch, key: Hashable, blocks: Blocks, resident: bool = True
    ) -> None:
        super().__init__(resident)
        self.parent, self.branch, self.key, self.blocks = parent, branch, key, blocks
        self.users = 0
        self.mark: object = None


def alike(have: Blocks, blocks: Blocks, at: int) -> int:
    """Return how many leading blocks of `have` equal those of `blocks` from position `at` on."""
    most = min(len(have), len(blocks) - at)
    if isinstance(have, range) or have[:most] == blocks[at : at + most]:
        return most
    return next(i for i in range(most) if have[i] != blocks[at + i])


def joined(first: Blocks, then: Blocks) -> Blocks:
    """Return the concatenation of two runs of blocks; a session's blocks are a range of numbers."""
    if isinstance(first, range):
        return range(first.start, first.stop + len(then))
    return (*first, *then)
