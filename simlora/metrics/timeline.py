"""The state of the replicas over time, thinned to what a figure can show."""

from __future__ import annotations

from struct import Struct

import numpy as np
import pandas as pd
from numpy.typing import NDArray

BOUNDARY = ("running", "waiting", "kv_tokens", "adapter_tokens")
CACHE = ("idle_kv_tokens", "invalid_kv_tokens", "host_kv_tokens")
REGION = ("region_used_tokens", "region_largest_free_tokens")
"""Columns sampled at iteration boundaries; CACHE only with a prefix cache, REGION only if adapters have their own
memory."""
CAPACITIES = ("capacity_tokens", "region_capacity_tokens")
"""Columns of constant capacities, in token slots: of the pool, and of the adapters' own memory."""
LEVELS = (*BOUNDARY, *CACHE, CAPACITIES[0], *REGION, CAPACITIES[1])
"""Columns of timeline.parquet after the replica and the time, in order."""
BUFFER_ROWS = 50_000
MOST_ROWS_A_REPLICA = 2_048
MOST_ROWS = 1 << 19
"""Rows of all replicas together: 25 MB, or 46 MB with a prefix cache and adapters in memory of their own."""


class Timeline:
    """Samples of all replicas: the last sample of each replica in each interval of time.

    Samples of all replicas go into one flat buffer, one append each (as bytes, at a third of the cost of an array). A
    full buffer is thinned with numpy. If too many rows are left, the intervals become twice as long, so that memory is
    bounded and the samples stay evenly spaced over time.
    """

    __slots__ = ("_buffer", "_counts", "_fields", "_full", "_most", "_pack", "_rows", "_stretch_s")

    def __init__(self, replicas: int, counts: tuple[str, ...]) -> None:
        self._counts = counts
        self._fields = 2 + len(counts)
        row = Struct(f"{self._fields}d")
        self._pack, self._full = row.pack, BUFFER_ROWS * row.size
        self._buffer = bytearray()
        self._rows: NDArray[np.float64] = np.empty((0, self._fields))
        self._most = min(MOST_ROWS_A_REPLICA * replicas, MOST_ROWS)
        self._stretch_s = 1e-3

    def add(self, sample: tuple[float, ...]) -> None:
        """Add a sample: replica, time, and the counts in order. Each replica's samples come in order of time."""
        buffer = self._buffer
        buffer += self._pack(*sample)
        if len(buffer) >= self._full:
            self._fold()

    def _fold(self) -> None:
        fresh = np.frombuffer(self._buffer).reshape(-1, self._fields).copy()
        self._buffer = bytearray()
        rows = np.concatenate([self._rows, fresh])
        # By replica and time; the sort is stable, so of equal times the later sample stays last.
        rows = self._thin(rows[np.lexsort((rows[:, 1], rows[:, 0]))])
        while len(rows) > self._most:
            self._stretch_s *= 2.0
            rows = self._thin(rows)
        self._rows = rows

    def _thin(self, rows: NDArray[np.float64]) -> NDArray[np.float64]:
        """Keep the last row of each replica and interval."""
        stretch = np.floor(rows[:, 1] / self._stretch_s)
        last = (np.diff(rows[:, 0], append=-1.0) != 0.0) | (np.diff(stretch, append=-1.0) != 0.0)
        return np.asarray(rows[last])

    def frame(self) -> pd.DataFrame:
        """Return the samples as a table, ordered by replica and time."""
        self._fold()
        replica, time_s, *counts = self._rows.T
        whole = {name: count.astype(np.int64) for name, count in zip(self._counts, counts, strict=True)}
        return pd.DataFrame({"replica": replica.astype(np.int64), "time_s": time_s, **whole})
