"""The mean size of the running batch over the last seconds."""

from __future__ import annotations

from typing import Final

WINDOW_S: Final = 5.0
"""Over which FastLibra takes the mean batch."""


class Change:
    """Since `since_s` the batch has been that large; `area` is the integral of its size until then."""

    __slots__ = ("area", "next", "since_s", "size")

    def __init__(self, since_s: float, size: int, area: float) -> None:
        self.since_s, self.size, self.area = since_s, size, area
        self.next: Change | None = None

    def integral(self, until_s: float) -> float:
        """Return the integral until a time before the next change."""
        return self.area + self.size * (until_s - self.since_s)


class MeanBatch:
    """Keeps the changes of the batch's size, as far back as the window reaches; amortised O(1) a change."""

    __slots__ = ("_first", "_last")

    def __init__(self) -> None:
        self._first = self._last = Change(0.0, 0, 0.0)

    def note(self, now_s: float, size: int) -> None:
        """The batch is that large from now on."""
        last = self._last
        if size == last.size:
            return
        last.next = self._last = Change(now_s, size, last.integral(now_s))
        self._forget(now_s - WINDOW_S)

    def mean(self, now_s: float) -> float:
        """Return the mean over the last `WINDOW_S` seconds."""
        begin_s = max(now_s - WINDOW_S, 0.0)
        if now_s <= begin_s:
            return 0.0
        self._forget(begin_s)
        first, last = self._first, self._last
        area = last.integral(now_s) - first.area - first.size * (begin_s - first.since_s)
        return area / (now_s - begin_s)

    def _forget(self, time_s: float) -> None:
        """Drop the changes before the last one that is not after a time."""
        while (after := self._first.next) is not None and after.since_s <= time_s:
            self._first = after
