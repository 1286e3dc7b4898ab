"""Which cached KV on the host could be brought back next, and which of it is worth most."""

from __future__ import annotations

from simlora.memory.order import GreatestFirst
from simlora.memory.segments import Branch, Node, Segment
from simlora.memory.worth import Worth


class Frontier:
    """The resident nodes of a prefix tree that have a child segment on the host, ordered by the best such child.

    Worth is that of the segments. An adapter that is not in HBM is in the frontier too unless KV comes only
    `after_adapters`. With `asks` false no segments are kept. Adding or removing a segment costs O(1), and O(log n) when
    the best is next asked for.
    """

    __slots__ = ("_after_adapters", "_asks", "_order", "_worth")

    def __init__(self, worth: Worth[Segment], after_adapters: bool, asks: bool) -> None:
        self._worth, self._after_adapters, self._asks = worth, after_adapters, asks
        self._order: GreatestFirst[Node] = GreatestFirst(BestOutside(worth.most_fade))

    def __contains__(self, node: Node) -> bool:
        return node in self._order

    def best(self, now_s: float) -> tuple[float, Segment] | None:
        """Return the worth and the segment of the most worthy segment on the host that could be brought in next."""
        node = self._order.first(now_s)
        if node is None:
            return None
        outside = node[1].outside
        assert outside is not None, "a node of the frontier has something outside"
        return outside.first(now_s)

    @property
    def node_count(self) -> int:
        """Number of nodes in the frontier."""
        return len(self._order)

    @property
    def puts(self) -> int:
        """A counter that changes whenever more segments can be brought in."""
        return self._order.puts

    def add(self, segment: Segment) -> None:
        """Add a segment on the host as a candidate below its parent."""
        if not self._asks:
            return
        parent = segment.parent
        if parent.outside is None:
            parent.outside = GreatestFirst(self._worth)
        parent.outside.put(segment)
        self.change(parent)

    def discard(self, segment: Segment) -> None:
        """Remove a segment from the candidates below its parent."""
        parent = segment.parent
        if parent.outside is None:
            return
        parent.outside.discard(segment)
        if not len(parent.outside):
            parent.outside = None
            self.change(parent)

    def part(self, upper: Segment, lower: Segment) -> None:
        """Replace a candidate by the two parts it was cut into; `lower` is the object that stood for both."""
        if upper.parent.outside is not None:
            upper.parent.outside.discard(lower)
        self.add(upper)
        self.add(lower)

    def adapter(self, branch: Branch) -> None:
        """Update the adapter's branch after its adapter entered or left HBM."""
        if self._after_adapters:
            self.change(branch)

    def change(self, node: Node) -> None:
        """Update a node after it, or a candidate below it, has come or gone."""
        open = node.resident or (isinstance(node, Branch) and not self._after_adapters)
        if open and node.outside is not None:
            self._order.put(node)
        else:
            self._order.discard(node)


class BestOutside(Worth[Node]):
    """What a node's best candidate is worth; the key is an upper bound for all of them."""

    def key(self, node: Node) -> float:
        assert node.outside is not None, "a node of the frontier has something outside"
        return node.outside.most()

    def fade(self, node: Node, now_s: float) -> float:
        assert node.outside is not None, "a node of the frontier has something outside"
        first = node.outside.first(now_s)
        assert first is not None, "the order has an entry"
        return node.outside.most() - first[0]
