"""What a replica looked like over time, thinned to what a picture can show."""

from __future__ import annotations

from array import array

import numpy as np
import pandas as pd
from numpy.typing import NDArray

MOST_SAMPLES = 2048
FIELDS = 5


class Timeline:
    """Samples of one replica; whenever they grow too many, every second one goes.

    From then on only samples at least `_gap_s` apart are taken, so memory is bounded and the
    picture stays even over time.
    """

    __slots__ = ("_gap_s", "_next_s", "_samples")

    def __init__(self) -> None:
        self._samples = array("d")  # FIELDS numbers a sample: one array is one place in memory
        self._gap_s = 0.0
        self._next_s = 0.0

    def add(self, now_s: float, running: int, waiting: int, kv_tokens: int, adapter_tokens: int) -> None:
        """Take a sample, unless the last one is too recent."""
        if now_s < self._next_s:
            return
        self._next_s = now_s + self._gap_s
        self._samples.extend((now_s, running, waiting, kv_tokens, adapter_tokens))
        if len(self._samples) == MOST_SAMPLES * FIELDS:
            self._thin()

    def _thin(self) -> None:
        kept = self._table()[::2]
        self._samples = array("d", kept.tobytes())
        self._gap_s = float(kept[-1, 0] - kept[0, 0]) / (MOST_SAMPLES // 2)
        self._next_s = float(kept[-1, 0]) + self._gap_s

    def _table(self) -> NDArray[np.float64]:
        return np.frombuffer(self._samples).reshape(-1, FIELDS)

    def frame(self, replica: int, capacity_tokens: int) -> pd.DataFrame:
        """Return the samples as a table, a row a sample."""
        time_s, *counts = self._table().T
        running, waiting, kv_tokens, adapter_tokens = (count.astype(np.int64) for count in counts)
        return pd.DataFrame(
            {
                "replica": replica,
                "time_s": time_s,
                "running": running,
                "waiting": waiting,
                "kv_tokens": kv_tokens,
                "adapter_tokens": adapter_tokens,
                "capacity_tokens": capacity_tokens,
            }
        )
