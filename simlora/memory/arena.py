"""An allocator of contiguous runs, in which memory can fragment."""

from __future__ import annotations

from itertools import count


class NoRun(Exception):
    """No free run is long enough."""


class Arena:
    """Best-fit allocation in one address space of `capacity` cells; adjacent free cells form one run.

    This models PyTorch's caching allocator inside a segment: it takes the smallest free run that is large enough, the
    lowest address among equals, and leaves the rest of the run free. `compact` models what it does when that fails:
    memory goes back to the driver, whose virtual addresses make free pages contiguous again.
    """

    __slots__ = ("_blocks", "_names", "capacity")

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self._blocks: dict[int, tuple[int, int]] = {}  # name: (start, cells), by address
        self._names = count()

    def copy(self) -> Arena:
        """Return an arena in the same state, for a trial."""
        twin = Arena(self.capacity)
        twin._blocks, twin._names = self._blocks.copy(), self._names
        return twin

    def allocate(self, cells: int) -> int:
        """Allocate a block of `cells` and return its name. Raises NoRun when no free run is long enough."""
        assert cells > 0, f"{cells} cells are no run"
        holes = [(size, start) for start, size in self._holes() if size >= cells]
        if not holes:
            raise NoRun
        name = next(self._names)
        self._blocks[name] = (min(holes)[1], cells)
        self._blocks = dict(sorted(self._blocks.items(), key=lambda block: block[1]))
        return name

    def free(self, name: int) -> None:
        """Free a block."""
        del self._blocks[name]

    def compact(self) -> None:
        """Put all blocks back to back, so that the free cells are one run."""
        at = 0
        for name, (_, cells) in self._blocks.items():
            self._blocks[name] = (at, cells)
            at += cells

    @property
    def free_cells(self) -> int:
        """Number of free cells."""
        return self.capacity - sum(cells for _, cells in self._blocks.values())

    @property
    def largest_run(self) -> int:
        """Length of the longest free run."""
        return max((size for _, size in self._holes()), default=0)

    def _holes(self) -> list[tuple[int, int]]:
        holes, at = [], 0
        for start, cells in self._blocks.values():
            if start > at:
                holes.append((at, start - at))
            at = start + cells
        if at < self.capacity:
            holes.append((at, self.capacity - at))
        return holes
