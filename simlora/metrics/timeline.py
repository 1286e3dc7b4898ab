"""What a replica looked like over time, thinned to what a picture can show."""

from __future__ import annotations

from array import array

import numpy as np
import pandas as pd

MOST_SAMPLES = 2048


class Timeline:
    """Samples of one replica; whenever they grow too many, every second one goes.

    From then on only samples at least `_gap_s` apart are taken, so memory is bounded and the
    picture stays even over time.
    """

    __slots__ = ("_columns", "_gap_s", "_next_s", "_time_s")

    def __init__(self) -> None:
        self._time_s = array("d")
        self._columns = tuple(array("q") for _ in range(4))
        self._gap_s = 0.0
        self._next_s = 0.0

    def add(self, now_s: float, running: int, waiting: int, kv_tokens: int, adapter_tokens: int) -> None:
        """Take a sample, unless the last one is too recent."""
        if now_s < self._next_s:
            return
        self._next_s = now_s + self._gap_s
        self._time_s.append(now_s)
        for column, value in zip(self._columns, (running, waiting, kv_tokens, adapter_tokens), strict=True):
            column.append(value)
        if len(self._time_s) == MOST_SAMPLES:
            self._thin()

    def _thin(self) -> None:
        self._time_s = self._time_s[::2]
        self._columns = tuple(column[::2] for column in self._columns)
        self._gap_s = (self._time_s[-1] - self._time_s[0]) / (MOST_SAMPLES // 2)
        self._next_s = self._time_s[-1] + self._gap_s

    def frame(self, replica: int, capacity_tokens: int) -> pd.DataFrame:
        """Return the samples as a table, a row a sample."""
        running, waiting, kv_tokens, adapter_tokens = (np.frombuffer(c, dtype=np.int64) for c in self._columns)
        return pd.DataFrame(
            {
                "replica": replica,
                "time_s": np.frombuffer(self._time_s),
                "running": running,
                "waiting": waiting,
                "kv_tokens": kv_tokens,
                "adapter_tokens": adapter_tokens,
                "capacity_tokens": capacity_tokens,
            }
        )
