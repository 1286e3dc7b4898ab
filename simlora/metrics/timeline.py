"""The state of the replicas over time, thinned to what a figure can show."""

from __future__ import annotations

import numpy as np
import pandas as pd
from librt.vecs import extend, vec
from mypy_extensions import i64
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
MOST_ROWS_A_REPLICA = 2_048
MOST_ROWS = 1 << 19
"""Rows of all replicas together: 25 MB, or 46 MB with a prefix cache and adapters in memory of their own."""


class Timeline:
    """Samples of all replicas: the last sample of each replica in each interval of time.

    A sample takes the place of the replica's last one if both lie in the same interval. If that leaves too many rows,
    the intervals become twice as long, so that memory is bounded and the samples stay evenly spaced over time.
    """

    __slots__ = (
        "_counts",
        "_end",
        "_fields",
        "_interval",
        "_latest",
        "_most",
        "_rows",
        "_shares",
        "_stretch_s",
    )

    def __init__(self, replicas: int, counts: tuple[str, ...]) -> None:
        self._counts = counts
        self._fields: i64 = 2 + len(counts)
        self._rows: vec[float] = vec[float](
            [0.0] * (2 + len(counts))
        )  # one after the other: replica, time, counts
        self._end: i64 = 0  # where the last row ends; behind it is room
        self._latest: vec[i64] = vec[i64]([0] * replicas)  # where the latest row of each replica begins
        self._interval: vec[i64] = vec[i64]([-1] * replicas)  # in which it lies
        self._most: i64 = min(MOST_ROWS_A_REPLICA * replicas, MOST_ROWS) * self._fields
        self._stretch_s = 1e-3
        self._shares: list[NDArray[np.float64]] = []  # the rows of others

    def add(
        self,
        replica: i64,
        time_s: float,
        running: float,
        waiting: float,
        kv_tokens: float,
        adapter_tokens: float,
        more: tuple[int, ...],
    ) -> None:
        """Add a sample. Each replica's samples come in order of time; `more` has the counts after BOUNDARY."""
        rows, at = self._rows, self._latest[replica]
        interval: i64 = int(time_s / self._stretch_s)
        if interval != self._interval[replica]:
            self._interval[replica] = interval
            at = self._latest[replica] = self._end
            self._end += self._fields
            if self._end > len(rows):
                rows = self._rows = extend(rows, rows[:])
            rows[at] = float(replica)
        rows[at + 1], rows[at + 2], rows[at + 3] = time_s, running, waiting
        rows[at + 4], rows[at + 5] = kv_tokens, adapter_tokens
        for count in more:
            rows[at + 6] = count
            at += 1
        if self._end > self._most:
            self._thin()

    def share(self) -> tuple[float, NDArray[np.float64]]:
        """Return the length of the intervals and the rows, for `add_share` of another one."""
        return self._stretch_s, self._ordered()

    def add_share(self, share: tuple[float, NDArray[np.float64]]) -> None:
        """Add the samples of another one, which has none of a replica of which this one has some."""
        stretch_s, rows = share
        self._shares.append(rows)
        self._stretch_s = max(self._stretch_s, stretch_s)

    def _thinned(self) -> NDArray[np.float64]:
        """Return one row of a replica in an interval, after lengthening the intervals until there are few enough."""
        rows = self._last(self._ordered())
        while rows.size > self._most:
            self._stretch_s *= 2.0
            rows = self._last(rows)
        return rows

    def _thin(self) -> None:
        """Keep few enough rows."""
        rows = self._thinned()
        self._rows, self._end = vec[float](rows.reshape(-1).tolist()), rows.size
        for row in np.flatnonzero(np.diff(rows[:, 0], append=-1.0)).tolist():
            replica: i64 = int(rows[row, 0])
            self._latest[replica] = row * self._fields
            self._interval[replica] = int(rows[row, 1] / self._stretch_s)

    def _last(self, rows: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the last row of each replica and interval, of rows by replica and time."""
        interval = np.floor(rows[:, 1] / self._stretch_s)
        last = (np.diff(rows[:, 0], append=-1.0) != 0.0) | (np.diff(interval, append=-1.0) != 0.0)
        return np.asarray(rows[last])

    def _ordered(self) -> NDArray[np.float64]:
        """Return the rows by replica and time."""
        rows = np.asarray(self._rows, dtype=np.float64)[: self._end].reshape(-1, self._fields)
        if self._shares:
            rows = np.concatenate([rows, *self._shares])
        return np.asarray(rows[np.lexsort((rows[:, 1], rows[:, 0]))])

    def frame(self) -> pd.DataFrame:
        """Return the samples as a table, ordered by replica and time."""
        replica, time_s, *counts = self._thinned().T
        whole = {name: count.astype(np.int64) for name, count in zip(self._counts, counts, strict=True)}
        return pd.DataFrame({"replica": replica.astype(np.int64), "time_s": time_s, **whole})
