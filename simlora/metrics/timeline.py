"""What the replicas looked like over time, thinned to what a picture can show."""

from __future__ import annotations

from struct import Struct

import numpy as np
import pandas as pd
from numpy.typing import NDArray

BOUNDARY = ("running", "waiting", "kv_tokens", "adapter_tokens")
CACHE = ("idle_kv_tokens", "invalid_kv_tokens", "host_kv_tokens")
REGION = ("region_used_tokens", "region_largest_free_tokens")
"""What is sampled at iteration boundaries; the second where KV is cached, the third where adapters have memory of their
own."""
CAPACITIES = ("capacity_tokens", "region_capacity_tokens")
"""Token slots that there are, which stay: of the pool and of adapters' own memory."""
LEVELS = (*BOUNDARY, *CACHE, CAPACITIES[0], *REGION, CAPACITIES[1])
"""Columns of timeline.parquet after the replica and the time, in their order."""
BUFFER_ROWS = 50_000
MOST_ROWS_A_REPLICA = 2_048
MOST_ROWS = 1 << 19
"""Rows of all replicas together: 25 MB, and 46 MB where KV is cached and adapters have memory of their own."""


class Timeline:
    """Samples of all replicas: the last one in each stretch of time, by replica.

    Samples go into one flat buffer, which costs the engine one append wherever the replica's own
    memory lies (as bytes: a third of what it costs an array); a full buffer is thinned with numpy.
    When too many rows are left the stretches become twice as long, so memory is bounded and the
    picture stays even over time.
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
        """Take a sample: replica, time, and the counts in their order; a replica's come in order of time."""
        buffer = self._buffer
        buffer += self._pack(*sample)
        if len(buffer) >= self._full:
            self._fold()

    def _fold(self) -> None:
        fresh = np.frombuffer(self._buffer).reshape(-1, self._fields).copy()
        self._buffer = bytearray()
        rows = np.concatenate([self._rows, fresh])
        # By replica and time; stable, so of equal times the later sample stays last.
        rows = self._thin(rows[np.lexsort((rows[:, 1], rows[:, 0]))])
        while len(rows) > self._most:
            self._stretch_s *= 2.0
            rows = self._thin(rows)
        self._rows = rows

    def _thin(self, rows: NDArray[np.float64]) -> NDArray[np.float64]:
        """Keep the last row of each replica and stretch."""
        stretch = np.floor(rows[:, 1] / self._stretch_s)
        last = (np.diff(rows[:, 0], append=-1.0) != 0.0) | (np.diff(stretch, append=-1.0) != 0.0)
        return np.asarray(rows[last])

    def frame(self) -> pd.DataFrame:
        """Return the samples as a table, ordered by replica and time."""
        self._fold()
        replica, time_s, *counts = self._rows.T
        whole = {name: count.astype(np.int64) for name, count in zip(self._counts, counts, strict=True)}
        return pd.DataFrame({"replica": replica.astype(np.int64), "time_s": time_s, **whole})
