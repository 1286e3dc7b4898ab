"""Adapters outside the pool: what S-LoRA had before unified paging, and what that costs in room.

Source: the variants of S-LoRA (MLSys'24) §7.1, as its authors published them. An adapter of rank r
takes as many token slots as in the unified pool. Cells are half slots: the A and the B matrices lie in
buffers of their own, all layers alike, so one layer stands for all.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable

from simlora.core.adapter import Adapter
from simlora.core.request import Request
from simlora.memory.arena import Arena, NoRun


class AdapterRegion(ABC):
    """`capacity` token slots beside the pool. Admission runs in trials, as for KV.

    `refusals` counts candidates that did not fit; `fragmented` those of them, and those failed
    compactions, for which enough slots were free but no run was long enough.
    """

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.arena = Arena(2 * capacity)
        self.refusals = 0
        self.fragmented = 0
        self._trial: dict[Adapter, None] = {}

    @abstractmethod
    def begin(self, running: Iterable[Request]) -> None:
        """Start a trial beside the running requests, in the batch's order."""

    @abstractmethod
    def fits(self, request: Request, fresh: bool) -> bool:
        """Whether a candidate fits beside those before it; `fresh`: its adapter has to be loaded."""

    @abstractmethod
    def load(self, adapters: Iterable[Adapter]) -> None:
        """Bring in the adapters of one prefill that are missing. Only what was found to fit is loaded."""

    @abstractmethod
    def drop(self, adapters: Iterable[Adapter]) -> None:
        """Let adapters go that nobody uses any more."""

    @property
    def used_tokens(self) -> int:
        """Slots that hold something between iterations."""
        return self.capacity - self.arena.free_cells // 2

    @property
    def largest_free_tokens(self) -> int:
        """The longest free run, in slots."""
        return self.arena.largest_run // 2


class Contiguous(AdapterRegion):
    """All adapters back to back in one buffer, which is built anew whenever its members change.

    A load concatenates the old buffer and the new adapters into a larger one; when adapters leave, the
    others are gathered into a smaller one. Old and new exist at the same time, and so do the empty tensors
    that the published code makes first: at its peak a change takes up to 2.5 times the adapters' own size,
    in runs that must be found between what is live. A load that finds none has to wait; a compaction
    that finds none leaves the buffer as it is, with holes in it, until the next.
    """

    def __init__(self, capacity: int) -> None:
        super().__init__(capacity)
        self._live: dict[Adapter, None] = {}
        self._buffers: tuple[int, ...] = ()  # where A and B start
        self._cells = 0  # of each of the two, holes included

    def begin(self, running: Iterable[Request]) -> None:
        self._trial = {}

    def fits(self, request: Request, fresh: bool) -> bool:
        if not fresh or request.adapter is None or request.adapter in self._trial:
            return True
        wanted = {**self._trial, request.adapter: None}
        more = sum(adapter.kv_tokens for adapter in wanted)
        try:
            self._grown(self.arena.copy(), more)
        except NoRun:
            self.refusals += 1
            self.fragmented += self.arena.free_cells >= 2 * (self._cells + 2 * more)
            return False
        self._trial = wanted
        return True

    def load(self, adapters: Iterable[Adapter]) -> None:
        fresh = dict.fromkeys(adapters)
        more = sum(adapter.kv_tokens for adapter in fresh)
        if more:
            self._buffers = self._grown(self.arena, more)
            self._cells += more
            self._live |= fresh

    def drop(self, adapters: Iterable[Adapter]) -> None:
        for adapter in adapters:
            self._live.pop(adapter, None)
        left = sum(adapter.kv_tokens for adapter in self._live)
        if left == self._cells:
            return
        arena = self.arena.copy()
        try:
            self._buffers = self._shrunk(arena, left)
        except NoRun:
            self.fragmented += 1
            return
        self.arena, self._cells = arena, left

    def _grown(self, arena: Arena, more: int) -> tuple[int, ...]:
        """Concatenate: empty tensors for what comes, then A and B, each freeing its predecessor."""
        fresh = [arena.allocate(more) for _ in range(2)]
        buffers = []
        for index in range(2):
            buffers.append(arena.allocate(self._cells + more))
            if self._buffers:
                arena.free(self._buffers[index])
        for start in fresh:
            arena.free(start)
        return tuple(buffers)

    def _shrunk(self, arena: Arena, left: int) -> tuple[int, ...]:
        """Gather what is left: empty tensors for A and B, each replaced by a copy, then the old ones go."""
        buffers = []
        for start in [arena.allocate(left) for _ in range(2)] if left else []:
            buffers.append(arena.allocate(left))
            arena.free(start)
        for old in self._buffers:
            arena.free(old)
        return tuple(buffers)


class Padded(AdapterRegion):
    """Each adapter in a run of its own; each iteration copies them, padded to the highest rank.

    The copies are one per stretch of equal adapters in the batch, in two runs (A and B) that exist while the
    iteration lasts. Prefill builds smaller ones, for its own requests only.
    """

    def __init__(self, capacity: int) -> None:
        super().__init__(capacity)
        self._starts: dict[Adapter, tuple[int, int]] = {}  # where its A and B start
        self._segments = 0
        self._rank_tokens = 0  # slots of the largest adapter in the trial
        self._last: Adapter | None = None
        self._tried: Arena = self.arena

    def begin(self, running: Iterable[Request]) -> None:
        self._tried = self.arena.copy()
        self._segments, self._rank_tokens, self._last, self._trial = 0, 0, None, {}
        for request in running:
            self._join(request.adapter)

    def fits(self, request: Request, fresh: bool) -> bool:
        adapter = request.adapter
        if adapter is None:
            return True
        before = self._segments, self._rank_tokens, self._last
        self._join(adapter)
        with_own = self._tried.copy()
        copies = self._segments * self._rank_tokens
        own = adapter.kv_tokens if fresh and adapter not in self._trial else 0
        try:
            if own:
                _both(with_own, own)
            _both(with_own.copy(), copies)
        except NoRun:
            self.refusals += 1
            self.fragmented += self._tried.free_cells >= 2 * (own + copies)
            self._segments, self._rank_tokens, self._last = before
            return False
        self._tried = with_own
        self._trial[adapter] = None
        return True

    def load(self, adapters: Iterable[Adapter]) -> None:
        for adapter in adapters:
            self._starts[adapter] = _both(self.arena, adapter.kv_tokens)

    def drop(self, adapters: Iterable[Adapter]) -> None:
        for adapter in adapters:
            for start in self._starts.pop(adapter):
                self.arena.free(start)

    def _join(self, adapter: Adapter | None) -> None:
        if adapter is None:
            return
        self._segments += adapter is not self._last
        self._last = adapter
        self._rank_tokens = max(self._rank_tokens, adapter.kv_tokens)


def _both(arena: Arena, cells: int) -> tuple[int, int]:
    """Take a run for A and one for B."""
    return arena.allocate(cells), arena.allocate(cells)


def adapter_region(kind: str, capacity: int) -> AdapterRegion | None:
    """Return the region that `replica.adapter_memory` names; None for the unified pool, which needs none."""
    return {"unified": lambda _: None, "contiguous": Contiguous, "padded": Padded}[kind](capacity)
