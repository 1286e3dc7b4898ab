"""Which cached KV could come back from the host, and which of it is worth most."""

from __future__ import annotations

from collections.abc import Callable

from simlora.memory.order import Order
from simlora.memory.segments import Branch, Node, Segment


class Doors:
    """Nodes of a tree behind which something could come: HBM holds them, and the host a segment right below.

    Each is worth what the best behind it is, by `key` and `fade` (see `Order`). An adapter that HBM does not hold is a
    door too if KV need not come `behind_adapters`. If nobody `asks`, nothing waits outside. As many enter and leave as
    come and go.
    """

    __slots__ = ("_behind_adapters", "_order", "_outside")

    def __init__(
        self,
        key: Callable[[Segment], float],
        fade: Callable[[Segment, float], float] | None,
        most_fade: float,
        behind_adapters: bool,
        asks: bool,
    ) -> None:
        def outside() -> Order[Segment]:
            return Order(key, fade, most_fade, least_first=False)

        self._outside = outside if asks else None
        self._behind_adapters = behind_adapters
        self._order: Order[Node] = Order(_most_outside, _less_than_most, most_fade, least_first=False)

    def __contains__(self, node: Node) -> bool:
        return node in self._order

    def root(self, now_s: float) -> tuple[float, Segment] | None:
        """Return which segment on the host is worth most in HBM, of those that follow what is there."""
        door = self._order.first(now_s)
        if door is None:
            return None
        outside = door[1].outside
        assert outside is not None, "a door leads outside"
        return outside.first(now_s)

    @property
    def roots(self) -> tuple[int, int]:
        """Through how many nodes of HBM something could come, and a number that is another once more can."""
        return len(self._order), self._order.puts

    def stay_outside(self, segment: Segment) -> None:
        """A segment on the host waits for its turn."""
        if self._outside is None:
            return
        parent = segment.parent
        if parent.outside is None:
            parent.outside = self._outside()
        parent.outside.put(segment)
        self.change(parent)

    def pass_over(self, segment: Segment) -> None:
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
        self.stay_outside(upper)
        self.stay_outside(lower)

    def adapter(self, branch: Branch) -> None:
        """An adapter has come into HBM, or has left it."""
        if self._behind_adapters:
            self.change(branch)

    def change(self, node: Node) -> None:
        """A node has come or gone, or what lies outside behind it."""
        open = node.resident or (isinstance(node, Branch) and not self._behind_adapters)
        if open and node.outside is not None:
            self._order.put(node)
        else:
            self._order.discard(node)


def _most_outside(node: Node) -> float:
    """What nothing outside behind a node is worth more than."""
    assert node.outside is not None, "a door leads outside"
    return node.outside.most()


def _less_than_most(node: Node, now_s: float) -> float:
    """By how much the best outside behind a node is worth less than that now."""
    assert node.outside is not None, "a door leads outside"
    first = node.outside.first(now_s)
    assert first is not None, "a door leads to somebody"
    return node.outside.most() - first[0]
