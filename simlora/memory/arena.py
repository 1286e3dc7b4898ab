"""Memory that hands out contiguous runs: where fragmentation happens."""

from __future__ import annotations

from bisect import insort


class NoRun(Exception):
    """No free run is long enough."""


class Arena:
    """Best fit over one address space of `capacity` cells; neighbours that are free make one run.

    This is what PyTorch's caching allocator does inside a segment: the smallest free run that is
    large enough, the lowest address among equals, and the rest of it stays free.
    """

    __slots__ = ("_blocks", "capacity")

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self._blocks: list[tuple[int, int]] = []  # (start, cells), by address

    def copy(self) -> Arena:
        """Return one in the same state, to try something out."""
        twin = Arena(self.capacity)
        twin._blocks = self._blocks.copy()
        return twin

    def allocate(self, cells: int) -> int:
        """Take a run of `cells` and return its start. Raises NoRun when no free run is as long."""
        assert cells > 0, f"{cells} cells are no run"
        best: tuple[int, int] | None = None
        for start, size in self._holes():
            if size >= cells and (best is None or size < best[1]):
                best = start, size
        if best is None:
            raise NoRun
        insort(self._blocks, (best[0], cells))
        return best[0]

    def free(self, start: int) -> None:
        """Give a run back."""
        for index, (at, _) in enumerate(self._blocks):
            if at == start:
                del self._blocks[index]
                return
        raise AssertionError(f"no run starts at {start}")

    @property
    def free_cells(self) -> int:
        """Cells that nobody holds."""
        return self.capacity - sum(cells for _, cells in self._blocks)

    @property
    def largest_run(self) -> int:
        """The longest run that could be handed out."""
        return max((size for _, size in self._holes()), default=0)

    def _holes(self) -> list[tuple[int, int]]:
        holes, at = [], 0
        for start, cells in self._blocks:
            if start > at:
                holes.append((at, start - at))
            at = start + cells
        if at < self.capacity:
            holes.append((at, self.capacity - at))
        return holes
