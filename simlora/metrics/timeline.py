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
        "_earlier",
        "_end",
        "_fields",
        "_interval",
        "_latest",
        "_most",
        "_room",
        "_rows",
        "_stretch_s",
    )

    def __init__(self, replicas: int, counts: tuple[str, ...]) -> None:
        self._counts = counts
        self._fields: i64 = 2 + len(counts)
        # The latest rows, one after the other: replica, time, counts; and earlier ones, which do not change any more.
        self._rows: vec[float] = vec[float]([0.0] * (2 + len(counts)))
        self._end: i64 = 0  # where the last row ends; behind it is room
        self._earlier: list[NDArray[np.float64]] = []
        self._latest: vec[i64] = vec[i64]([0] * replicas)  # where the latest row of each replica begins
        self._interval: vec[i64] = vec[i64]([-1] * replicas)  # in which it lies
        self._most: i64 = min(MOST_ROWS_A_REPLICA * replicas, MOST_ROWS) * self._fields
        self._room = self._most  # for the latest rows
        self._stretch_s = 1e-3

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
        if self._end > self._room:
            self._thin()

    def share(self) -> tuple[float, NDArray[np.float64]]:
        """Return the length of the intervals and the rows, for `add_share` of another one."""
        return self._stretch_s, self._ordered()

    def add_share(self, share: tuple[float, NDArray[np.float64]]) -> None:
        """Add the samples of another one, which has none of a replica of which this one has some."""
        stretch_s, rows = share
        self._earlier.append(rows)
        self._stretch_s = max(self._stretch_s, stretch_s)

    def _thinned(self) -> NDArray[np.float64]:
        """Return the last row of each replica in each interval, after lengthening these until there are few enough."""
        rows = self._ordered()
        time_s = rows[:, 1].copy()
        last_of_replica = np.diff(rows[:, 0], append=-1.0) != 0.0
        while True:
            last = last_of_replica | (np.diff(np.floor(time_s / self._stretch_s), append=-1.0) != 0.0)
            if np.count_nonzero(last) * self._fields <= self._most:
                return np.asarray(rows[last])
            self._stretch_s *= 2.0

    def _thin(self) -> None:
        """Keep few enough rows."""
        rows = self._thinned()
        last = np.diff(rows[:, 0], append=-1.0) != 0.0
        latest = rows[last]
        self._earlier = [rows[~last]]
        self._room = self._most - rows.size + latest.size
        self._rows, self._end = vec[float](latest.reshape(-1).tolist()), latest.size
        at: i64 = 0
        for number, time_s in latest[:, :2].tolist():
            replica: i64 = int(number)
            self._latest[replica], self._interval[replica] = at, int(time_s / self._stretch_s)
            at += self._fields

    def _ordered(self) -> NDArray[np.float64]:
        """Return the rows by replica and time; of each replica, they lie in order of time."""
        rows = np.asarray(self._rows, dtype=np.float64)[: self._end].reshape(-1, self._fields)
        rows = np.concatenate([*self._earlier, rows])
        return np.asarray(rows[np.argsort(rows[:, 0], kind="stable")])

    def frame(self) -> pd.DataFrame:
        """Return the samples as a table, ordered by replica and time."""
        replica, time_s, *counts = self._thinned().T
        whole = {name: count.astype(np.int64) for name, count in zip(self._counts, counts, strict=True)}
        return pd.DataFrame({"replica": replica.astype(np.int64), "time_s": time_s, **whole})
