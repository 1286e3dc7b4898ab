"""Which cached KV could come back from the host, and which of it is worth most."""

from __future__ import annotations

from collections.abc import Callable

from simlora.memory.order import Order
from simlora.memory.segments import Branch, Node, Segment


class Frontier:
    """Nodes of a tree behind which something could come: HBM holds them, and the host a segment right below.

    Each is worth what the best behind it is, by `key` and `fade` (see `Order`). An adapter that HBM does not hold is
    one of them too if KV need not come `after_adapters`. If nobody `asks`, nothing waits outside. O(log n) for each
    segment that comes or goes.
    """

    __slots__ = ("_after_adapters", "_order", "_outside")

    def __init__(
        self,
        key: Callable[[Segment], float],
        fade: Callable[[Segment, float], float] | None,
        most_fade: float,
        after_adapters: bool,
        asks: bool,
    ) -> None:
        def outside() -> Order[Segment]:
            return Order(key, fade, most_fade, least_first=False)

        self._outside = outside if asks else None
        self._after_adapters = after_adapters
        self._order: Order[Node] = Order(_most_outside, _less_than_most, most_fade, least_first=False)

    def __contains__(self, node: Node) -> bool:
        return node in self._order

    def best(self, now_s: float) -> tuple[float, Segment] | None:
        """Return which segment on the host is worth most in HBM, of those that follow what is there."""
        node = self._order.first(now_s)
        if node is None:
            return None
        outside = node[1].outside
        assert outside is not None, "a node of the frontier has something outside"
        return outside.first(now_s)

    @property
    def node_count(self) -> int:
        """Behind how many nodes something could come."""
        return len(self._order)

    @property
    def puts(self) -> int:
        """A number that is another once more can come."""
        return self._order.puts

    def add(self, segment: Segment) -> None:
        """A segment on the host waits for its turn."""
        if self._outside is None:
            return
        parent = segment.parent
        if parent.outside is None:
            parent.outside = self._outside()
        parent.outside.put(segment)
        self.change(parent)

    def discard(self, segment: Segment) -> None:
        """Leave a segment out of those that could come."""
        parent = segment.parent
        if parent.outside is None:
            return
        parent.outside.discard(segment)
        if not len(parent.outside):
            parent.outside = None
            self.change(parent)

    def part(self, upper: Segment, lower: Segment) -> None:
        """One that waits has become two, the lower of which has waited for both so far."""
        if upper.parent.outside is not None:
            upper.parent.outside.discard(lower)
        self.add(upper)
        self.add(lower)

    def adapter(self, branch: Branch) -> None:
        """An adapter has come into HBM, or has left it."""
        if self._after_adapters:
            self.change(branch)

    def change(self, node: Node) -> None:
        """A node has come or gone, or what lies outside behind it."""
        open = node.resident or (isinstance(node, Branch) and not self._after_adapters)
        if open and node.outside is not None:
            self._order.put(node)
        else:
            self._order.discard(node)


def _most_outside(node: Node) -> float:
    """An upper bound of what any segment behind a node is worth."""
    assert node.outside is not None, "a node of the frontier has something outside"
    return node.outside.most()


def _less_than_most(node: Node, now_s: float) -> float:
    """That bound less what the best behind a node is worth now."""
    assert node.outside is not None, "a node of the frontier has something outside"
    first = node.outside.first(now_s)
    assert first is not None, "and somebody in it"
    return node.outside.most() - first[0]
