"""Adapter memory outside the pool: S-LoRA's designs before unified paging, and their cost in memory and time.

Source: the variants of S-LoRA (MLSys'24) §7.1, as its authors published them. An adapter of rank r
takes as many token slots as in the unified pool, where these slots stay counted, as in the published code.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable

from simlora.core.adapter import Adapter
from simlora.core.errors import not_defined
from simlora.core.request import Request
from simlora.memory.arena import Arena, NoRun


class AdapterRegion:
    """`capacity` token slots beside the pool. Admission runs in trials, as for KV.

    `refusals` counts candidates that did not fit, `flushes` how often free slots had to be made contiguous.
    Fragmentation is the share of free slots outside the longest free run; it is summed over `changes`.
    """

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.refusals = 0
        self.flushes = 0
        self.changes = 0
        self.fragmentation_sum = 0.0
        self.fragmentation_max = 0.0

    def inherit_counters(self, gone: AdapterRegion) -> None:
        """Take over the counters of the region that this one replaces."""
        self.refusals, self.flushes, self.changes = gone.refusals, gone.flushes, gone.changes
        self.fragmentation_sum, self.fragmentation_max = gone.fragmentation_sum, gone.fragmentation_max

    @abstractmethod
    def begin(self, running: Iterable[Request]) -> None:
        """Start a trial beside the running requests, given in the batch's order."""
        raise not_defined(self, "begin")

    @abstractmethod
    def fits(self, request: Request, fresh: bool) -> bool:
        """Return whether a candidate fits beside the earlier ones; `fresh`: its adapter has to be loaded."""
        raise not_defined(self, "fits")

    @abstractmethod
    def load(self, adapters: Iterable[Adapter]) -> None:
        """Lay out the missing adapters of one prefill. Only adapters that a trial found to fit are loaded."""
        raise not_defined(self, "load")

    @abstractmethod
    def drop(self, adapters: Iterable[Adapter]) -> None:
        """Remove adapters that no request uses any more."""
        raise not_defined(self, "drop")

    @property
    @abstractmethod
    def used_tokens(self) -> int:
        """Slots in use between iterations."""
        raise not_defined(self, "used_tokens")

    @property
    @abstractmethod
    def largest_free_tokens(self) -> int:
        """Length of the longest free run, in slots."""
        raise not_defined(self, "largest_free_tokens")


class Contiguous(AdapterRegion):
    """All adapters back to back in one buffer, which is rebuilt whenever an adapter comes or leaves.

    A load concatenates the old buffer and the new adapters into a larger one; when adapters leave, the others are
    gathered into a smaller one. The old and the new buffer exist at the same time, and so do the empty tensors that the
    published code creates first. At its peak a change takes up to 2.5 times the adapters' own size, in free runs
    between live blocks. If enough slots are free but no run is long enough, the allocator returns its cached memory to
    the driver and allocates it again, which takes time (a flush). A load waits if too few slots are free. If there is
    no room to compact after adapters left, the buffer keeps its holes until the next change.

    Cells are half slots: A and B have a buffer each. All layers are alike, so one stands for all.
    """

    def __init__(self, capacity: int) -> None:
        super().__init__(capacity)
        self._arena = Arena(2 * capacity)
        self._live: dict[Adapter, None] = {}
        self._buffers: tuple[int, ...] = ()  # the blocks of A and B
        self._cells = 0  # of each of the two buffers, including holes
        self._trial: dict[Adapter, None] = {}

    @property
    def used_tokens(self) -> int:
        return self._cells

    @property
    def largest_free_tokens(self) -> int:
        return self._arena.largest_run // 2

    def begin(self, running: Iterable[Request]) -> None:
        self._trial = {}

    def fits(self, request: Request, fresh: bool) -> bool:
        if not fresh or request.adapter is None or request.adapter in self._trial:
            return True
        if not request.adapter.kv_tokens:  # merged beforehand
            return True
        wanted = {**self._trial, request.adapter: None}
        try:
            self._grown(sum(adapter.kv_tokens for adapter in wanted))
        except NoRun:
            self.refusals += 1
            return False
        self._trial = wanted
        return True

    def load(self, adapters: Iterable[Adapter]) -> None:
        fresh = dict.fromkeys(adapters)
        more = sum(adapter.kv_tokens for adapter in fresh)
        if more:
            self._arena, self._buffers, flushes = self._grown(more)
            self._cells += more
            self._live |= fresh
            self._changed(flushes)

    def drop(self, adapters: Iterable[Adapter]) -> None:
        for adapter in adapters:
            self._live.pop(adapter, None)
        left = sum(adapter.kv_tokens for adapter in self._live)
        if left == self._cells:
            return
        try:
            self._arena, self._buffers, flushes = self._shrunk(left)
        except NoRun:
            return
        self._cells = left
        self._changed(flushes)

    def _changed(self, flushes: int) -> None:
        self.flushes += flushes
        self.changes += 1
        free = self._arena.free_cells
        fragmentation = 1.0 - self._arena.largest_run / free if free else 0.0
        self.fragmentation_sum += fragmentation
        self.fragmentation_max = max(self.fragmentation_max, fragmentation)

    def _grown(self, more: int) -> tuple[Arena, tuple[int, ...], int]:
        """Return the state after a concatenation: empty tensors for the new, then A and B, each freeing its old."""
        arena, flushes = self._arena.copy(), _Flushes()
        fresh = [flushes.allocate(arena, more) for _ in range(2)]
        buffers = []
        for index in range(2):
            buffers.append(flushes.allocate(arena, self._cells + more))
            if self._buffers:
                arena.free(self._buffers[index])
        for block in fresh:
            arena.free(block)
        return arena, tuple(buffers), flushes.count

    def _shrunk(self, left: int) -> tuple[Arena, tuple[int, ...], int]:
        """Return the state after a gather: empty tensors for A and B, each replaced by a copy, then old ones freed."""
        arena, flushes = self._arena.copy(), _Flushes()
        buffers = []
        for block in [flushes.allocate(arena, left) for _ in range(2)] if left else []:
            buffers.append(flushes.allocate(arena, left))
            arena.free(block)
        for old in self._buffers:
            arena.free(old)
        return arena, tuple(buffers), flushes.count


class _Flushes:
    """Allocates blocks, compacting the arena when no free run is long enough; counts at most one flush per change."""

    def __init__(self) -> None:
        self.count = 0

    def allocate(self, arena: Arena, cells: int) -> int:
        try:
            return arena.allocate(cells)
        except NoRun:
            self.count = 1
            arena.compact()
            return arena.allocate(cells)


class PaddedAdapters(AdapterRegion):
    """Each adapter in tensors of its own; each iteration copies them, padded to the highest rank.

    There is one copy per segment of equal adapters in the batch, which exists during the iteration. The published code
    returns cached memory before every iteration, so free slots are always contiguous. The time for that is part of
    every iteration, and of the kernel's coefficients.
    """

    def __init__(self, capacity: int) -> None:
        super().__init__(capacity)
        self._live: dict[Adapter, None] = {}
        self._used = 0
        self._trial: dict[Adapter, None] = {}
        self._segments = 0
        self._widest = 0  # slots of the largest adapter in the trial
        self._last: Adapter | None = None

    @property
    def used_tokens(self) -> int:
        return self._used

    @property
    def largest_free_tokens(self) -> int:
        return self.capacity - self._used

    def begin(self, running: Iterable[Request]) -> None:
        self._segments, self._widest, self._last, self._trial = 0, 0, None, {}
        for request in running:
            self._join(request.adapter)

    def fits(self, request: Request, fresh: bool) -> bool:
        adapter = request.adapter
        if adapter is None:
            return True
        before = self._segments, self._widest, self._last
        wanted = {**self._trial, adapter: None} if fresh else self._trial
        self._join(adapter)
        own = sum(adapter.kv_tokens for adapter in wanted)
        if self._used + own + self._segments * self._widest > self.capacity:
            self.refusals += 1
            self._segments, self._widest, self._last = before
            return False
        self._trial = wanted
        return True

    def load(self, adapters: Iterable[Adapter]) -> None:
        self._live |= dict.fromkeys(adapters)
        self._used = sum(adapter.kv_tokens for adapter in self._live)

    def drop(self, adapters: Iterable[Adapter]) -> None:
        for adapter in adapters:
            del self._live[adapter]
        self._used = sum(adapter.kv_tokens for adapter in self._live)

    def _join(self, adapter: Adapter | None) -> None:
        if adapter is not None:
            self._segments += adapter is not self._last
            self._last = adapter
            self._widest = max(self._widest, adapter.kv_tokens)


def adapter_region(kind: str, capacity: int) -> AdapterRegion | None:
    """Return the region for a `replica.adapter_memory`; None for the unified pool, which needs none."""
    return {"unified": lambda _: None, "contiguous": Contiguous, "padded": PaddedAdapters}[kind](capacity)
