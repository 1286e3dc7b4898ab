"""Allocate blocks as tokens are produced."""

from __future__ import annotations

from simlora.core.request import Request
from simlora.memory.reservation.base import UNLIMITED, Reservation


class Paged(Reservation):
    """KV is allocated in blocks as tokens are produced; admission keeps a watermark free.

    When blocks run out the replica preempts. Source: vLLM (SOSP'23) §4.
    """

    grows = True
    __slots__ = (
        "_classes",
        "_count",
        "_rounded",
        "_step",
        "_trial",
        "_used",
        "_watermark_tokens",
        "block_size",
    )

    def __init__(self, capacity: int, block_size: int = 16, watermark: float = 0.01) -> None:
        super().__init__(capacity)
        self.block_size = block_size
        self._watermark_tokens = int(watermark * capacity)
        self._count = 0  # requests, each charged with its context at step 0
        # Requests by offset modulo the block size: requests of one class fill their blocks at the same steps.
        self._classes = [0] * block_size
        self._rounded = 0  # sum over requests of offset rounded up to whole blocks, at step 0
        self._step, self._used = 0, 0  # cached used_tokens, and the step that it is for
        self._trial = 0

    def begin(self, step: int) -> None:
        self._trial = self.used_tokens(step)

    def fits(self, context: int, to_come: int, beside_tokens: int) -> bool:
        need = self._trial + self._blocks(context) * self.block_size
        # A candidate on its own may use the watermark too; otherwise a long prompt would never start.
        spare = self._watermark_tokens if self._trial else 0
        if need > self.capacity - beside_tokens - spare:
            return False
        self._trial = need
        return True

    def add(self, request: Request, context: int, to_come: int, step: int) -> None:
        offset = context - step
        request.held_offset = offset
        self._count += 1
        self._classes[offset % self.block_size] += 1
        self._rounded += self._blocks(offset) * self.block_size
        self._changed(step, self._blocks(context))

    def remove(self, request: Request, step: int) -> None:
        offset = request.held_offset
        self._count -= 1
        self._classes[offset % self.block_size] -= 1
        self._rounded -= self._blocks(offset) * self.block_size
        self._changed(step, -self._blocks(offset + step))

    def advance(self, request: Request, tokens: int, step: int) -> None:
        context = request.held_offset + step
        self.remove(request, step)
        self.add(request, context + tokens, 0, step)

    def held_tokens(self, request: Request, step: int) -> int:
        return self._blocks(request.held_offset + step) * self.block_size

    def used_tokens(self, step: int) -> int:
        """Return the slots of the whole blocks held by contexts of offset + step tokens.

        With step = q * B + r, ceil((offset + step) / B) is ceil(offset / B) + q, and one more
        when the r tokens spill over: when -offset mod B < r.
        """
        if step != self._step:  # called four times a boundary
            cycles, rest = divmod(step, self.block_size)
            spilled = self._classes[0] + sum(self._classes[self.block_size - rest + 1 :]) if rest else 0
            self._step = step
            self._used = self._rounded + (self._count * cycles + spilled) * self.block_size
        return self._used

    def steps_until_full(self, free_tokens: int, step: int, most: int = UNLIMITED) -> int:
        if not self._count:
            return UNLIMITED
        cycles, free = divmod(free_tokens // self.block_size, self._count)
        steps = cycles * self.block_size
        if steps >= most:
            return most
        for ahead in range(self.block_size):
            # Contexts that fill their blocks now need another block for the next token.
            free -= self._classes[-(step + ahead) % self.block_size]
            if free < 0:
                return steps + ahead + 1
        raise AssertionError("a whole cycle of blocks fits after all cycles were taken out")

    def _changed(self, step: int, blocks: int) -> None:
        if step == self._step:
            self._used += blocks * self.block_size
        else:
            self._step = -1

    def _blocks(self, tokens: int) -> int:
        return -(-tokens // self.block_size)
