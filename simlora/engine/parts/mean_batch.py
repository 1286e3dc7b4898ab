"""The mean size of the running batch over the last seconds."""

from __future__ import annotations

from collections import deque

WINDOW_S = 5.0
"""Over which FastLibra takes the mean batch."""


class MeanBatch:
    """Keeps since when the batch has been how large, as far back as the window reaches."""

    __slots__ = ("_area", "_changes", "_since_s", "_size")

    def __init__(self) -> None:
        self._since_s, self._size, self._area = 0.0, 0, 0.0  # the last change, and the integral until then
        self._changes: deque[tuple[float, int, float]] = deque([(0.0, 0, 0.0)])

    def note(self, now_s: float, size: int) -> None:
        """The batch is that large from now on."""
        if size == self._size:
            return
        changes = self._changes
        self._area += self._size * (now_s - self._since_s)
        self._since_s, self._size = now_s, size
        changes.append((now_s, size, self._area))
        while len(changes) > 1 and changes[1][0] <= now_s - WINDOW_S:
            changes.popleft()

    def mean(self, now_s: float) -> float:
        """Return the mean over the last `WINDOW_S` seconds."""
        begin_s = max(now_s - WINDOW_S, 0.0)
        if now_s <= begin_s:
            return 0.0
        first_s, first, first_area = self._changes[0]
        for change in self._changes:
            if change[0] > begin_s:
                break
            first_s, first, first_area = change
        area = self._area + self._size * (now_s - self._since_s) - first_area - first * (begin_s - first_s)
        return area / (now_s - begin_s)
