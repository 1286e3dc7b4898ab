"""When each running request had its last token, and what passed until its next."""

from __future__ import annotations

from simlora.engine.run import DecodeRun
from simlora.metrics.histogram import TokenGaps


class TokenTimes:
    """Counts the time between tokens (TBT) of one replica's requests, without a row a token.

    All running requests had their last token at the last decode step, but for those that joined
    since: those at the end of their prefill. A preempted request's next token comes with its next
    prefill.
    """

    __slots__ = ("_decoded_s", "_gaps", "_joined_s", "_preempted_s")

    def __init__(self, gaps: TokenGaps) -> None:
        self._gaps = gaps
        self._decoded_s = 0.0
        self._joined_s: dict[int, float] = {}
        self._preempted_s: dict[int, float] = {}

    def joined(self, id: int, now_s: float) -> None:
        """A request starts to decode, having had a token just now."""
        self._joined_s[id] = now_s

    def preempted(self, id: int) -> None:
        """A request leaves the batch before its end."""
        self._preempted_s[id] = self._joined_s.pop(id, self._decoded_s)

    def waits(self, id: int, now_s: float) -> None:
        """A request that had a token just now does not join the batch yet."""
        self._preempted_s[id] = now_s

    def rejoins(self, id: int) -> None:
        """A request that waited after its last token starts to decode again."""
        self._joined_s[id] = self._preempted_s.pop(id)

    def leaves(self, id: int) -> float:
        """A request that waits goes elsewhere; return when its last token was."""
        return self._preempted_s.pop(id)

    def resumed(self, id: int, now_s: float) -> None:
        """A request that was preempted has its next token."""
        self._gaps.add(now_s - self._preempted_s.pop(id), 1)

    def decoded(self, run: DecodeRun, steps: int, size: int, now_s: float) -> None:
        """A batch of `size` took the next `steps` steps of a run.

        Every gap is a step's length; the first one also what passed since the last token.
        """
        gaps, start = self._gaps, run.end_s(run.done) if run.done else run.start_s
        first = run.base_s + run.slope_s * run.done
        if not self._joined_s and self._decoded_s == start:
            gaps.add_run(first, run.slope_s, steps, size)
        else:
            others = size - len(self._joined_s)
            if others:
                gaps.add(start - self._decoded_s + first, others)
            for joined_s in self._joined_s.values():
                gaps.add(start - joined_s + first, 1)
            self._joined_s.clear()
            if steps > 1:
                gaps.add_run(first + run.slope_s, run.slope_s, steps - 1, size)
        self._decoded_s = now_s
