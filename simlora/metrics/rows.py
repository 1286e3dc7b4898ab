"""The rows of requests.parquet: each is packed when its request ends, and lies in order of id."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from struct import Struct
from typing import Any, Final

import numpy as np
import pandas as pd
from mypy_extensions import i64
from numpy.typing import NDArray

from simlora.core.interrupts import held_back
from simlora.core.trace import Trace

Write = Callable[[pd.DataFrame], None]
"""Takes the next rows of requests.parquet."""
RowsShare = tuple[NDArray[np.int64], bytes, list[str], dict[int, int]]
"""The ids of requests, their rows, the reasons to which these refer; and cached tokens of requests without a row."""


UNFINISHED: Final = 0
FINISHED: Final = 1
ABORTED: Final = 2
REJECTED: Final = 3
STATUSES = ("unfinished", "finished", "aborted", "rejected")
"""How a request ended, by the number in its row."""
LAYOUT = np.dtype(
    [
        *((name, "f8") for name in ("finish_s", "admitted_s", "first_token_s")),
        *((name, "f8") for name in ("cold_start_s", "kv_cold_start_s", "blocked_s")),
        *((name, "i4") for name in ("replica", "preemptions", "migrations", "reason")),
        ("status", "i1"),
        ("cached_tokens", "i4"),
    ],
    align=True,
)
_pack = Struct("6d4ib").pack_into  # all but cached_tokens
_pack_tokens = Struct("i").pack_into
SIZE: Final = 72
STATUS_AT: Final = 64
TOKENS_AT: Final = 68
"""Bytes of a row, and where in it status and cached_tokens are."""
GROWN: Final = 4096
"""Rows that are added at a time."""
NAN: Final = float("nan")
_empty = bytearray(SIZE)
_pack(_empty, 0, NAN, NAN, NAN, 0.0, 0.0, 0.0, -1, 0, 0, 0, UNFINISHED)


class RequestRows:
    """Rows of the requests of a trace, 72 bytes each; those of which nothing was put are unfinished ones.

    They stay in memory until `stream` says where they go: then only the rows of the group are kept that is the first
    with a request that has not ended, and those after it.
    """

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self._rows = bytearray()
        self._first: i64 = 0  # the id of the first row that is kept
        self._end: i64 = 0  # that after the last one
        self._reasons = {"": 0}
        self._write: Write | None = None
        self._group = 0  # rows that are written at a time
        self._until: i64 = 0  # the first id that is not of the group to be written next
        self._to_end: i64 = 0  # requests of that group that have not ended

    def code(self, reason: str) -> int:
        """Return the number by which a row names its reason."""
        return self._reasons.setdefault(reason, len(self._reasons))

    def put(
        self,
        id: i64,
        status: i64,
        replica: i64,
        reason: i64,
        preemptions: i64,
        migrations: i64,
        finish_s: float,
        admitted_s: float,
        first_token_s: float,
        cold_start_s: float,
        kv_cold_start_s: float,
        blocked_s: float,
    ) -> None:
        """Write all of a request's row but its cached tokens, at once: no interrupt leaves half a row."""
        at, rows = self._at(id), self._rows
        assert not rows[at + STATUS_AT], f"request {id} ends twice"
        _pack(
            rows,
            at,
            finish_s,
            admitted_s,
            first_token_s,
            cold_start_s,
            kv_cold_start_s,
            blocked_s,
            replica,
            preemptions,
            migrations,
            reason,
            status,
        )
        if id < self._until and status:
            self._to_end -= 1
            if not self._to_end:
                self._write_ended()

    def put_cached_tokens(self, id: int, tokens: int) -> None:
        """Write how many tokens of a request's prompt were cached."""
        _pack_tokens(self._rows, self._at(id) + TOKENS_AT, tokens)

    def take(self, share: RowsShare) -> int:
        """Write the rows that a RowLog has collected; return how many of their requests have ended."""
        ids, written, reasons, cached_tokens = share
        for id, tokens in cached_tokens.items():
            self.put_cached_tokens(id, tokens)
        if not len(ids):
            return 0
        assert np.unique(ids).size == ids.size, "a request ends twice"
        assert int(ids.min()) >= self._first, "a request ends twice"
        self._reach(int(ids.max()) + 1)
        entries = np.frombuffer(written, LAYOUT).copy()
        entries["reason"] = np.array([self.code(reason) for reason in reasons])[entries["reason"]]
        rows = np.frombuffer(self._rows, LAYOUT)
        assert not rows["status"][ids - self._first].any(), "a request ends twice"
        rows[ids - self._first] = entries
        del rows  # the bytes cannot grow under a view
        has_ended = entries["status"] != UNFINISHED
        if self._until:
            self._to_end -= int(np.count_nonzero(has_ended & (ids < self._until)))
            self._write_ended()
        return int(np.count_nonzero(has_ended))

    def _at(self, id: i64) -> i64:
        """Return where a row begins; there is one then."""
        assert id >= self._first, f"request {id} ends twice"
        if id >= self._end:
            self._reach(id + 1)
        return (id - self._first) * SIZE

    def _reach(self, end: i64) -> None:
        """Have all rows before that id."""
        if end > self._end:
            more = max(end - self._end, GROWN)
            self._rows += _empty * more
            self._end += more

    def stream(self, write: Write, group: int) -> None:
        """Give `write` groups of so many rows from now on, each when all requests up to its last one have ended."""
        self._write, self._group = write, group
        self._until = self._to_end = group

    def _write_ended(self) -> None:
        """Write the groups whose requests have all ended."""
        while not self._to_end:
            self._write_group(self._group)
            ended = np.count_nonzero(np.frombuffer(self._rows, LAYOUT)["status"][: self._group])
            self._until = self._first + self._group
            self._to_end = self._group - int(ended)

    def forget(self) -> int:
        """Drop the rows before the first request that has not ended; return its id."""
        has_ended = np.frombuffer(self._rows, LAYOUT)["status"] != UNFINISHED
        count = int(has_ended.size if has_ended.all() else has_ended.argmin())
        del self._rows[: count * SIZE]
        self._first += count
        return self._first

    def flush(self) -> None:
        """Write all rows that were not yet, those of unfinished requests too."""
        while self._first < len(self.trace):
            self._write_group(min(self._group, len(self.trace) - self._first))

    def _write_group(self, rows: int) -> None:
        assert self._write is not None, "a row group is complete, and no writer is set"
        with held_back():
            self._write(self._frame(rows))
            del self._rows[: rows * SIZE]
            self._first += rows

    def frame(self) -> pd.DataFrame:
        """Return all rows as a table."""
        assert not self._first, "rows were written already"
        return self._frame(len(self.trace))

    def _frame(self, count: int) -> pd.DataFrame:
        """Return the first so many of the rows that are kept, as a table."""
        self._reach(self._first + count)
        trace = self.trace
        # Only copies of it leave: rows cannot grow under a view.
        rows = np.frombuffer(self._rows, LAYOUT, count)
        part = slice(self._first, self._first + count)
        finished = rows["status"] == FINISHED
        adapter, output = trace.adapter[part], trace.output_tokens[part].astype(np.int64)
        arrival, finish = trace.arrival_s[part].copy(), rows["finish_s"].copy()
        first, admitted = rows["first_token_s"].copy(), rows["admitted_s"].copy()
        names = np.array([a.name for a in trace.adapters] + [""], dtype=object)
        ranks = np.array([a.rank for a in trace.adapters] + [0], dtype=np.int64)
        with np.errstate(invalid="ignore", divide="ignore"):
            tpot = np.where(output > 1, (finish - first) / (output - 1), np.nan)
        labels = np.array(STATUSES, dtype=object)
        reasons = np.array(list(self._reasons), dtype=object)
        columns: dict[str, Any] = {  # mypy takes 9 s longer to find a type for it
            "request_id": np.arange(part.start, part.stop, dtype=np.int64),
            "adapter": pd.array(names[adapter], dtype="str"),
            "rank": ranks[adapter],
            "prompt_tokens": trace.prompt_tokens[part].astype(np.int64),
            "output_tokens": output,
            "cached_tokens": rows["cached_tokens"].copy(),
            "replica": rows["replica"].copy(),
            "arrival_s": arrival,
            "admitted_s": admitted,
            "first_token_s": first,
            "finish_s": finish,
            "status": pd.array(labels[rows["status"]], dtype="str"),
            "reason": pd.array(reasons[rows["reason"]], dtype="str"),
            "ttft_s": first - arrival,
            "tpot_s": tpot,
            "latency_s": np.where(finished, finish - arrival, np.nan),
            "queue_s": admitted - arrival,
            "cold_start_s": np.where(finished, rows["cold_start_s"], np.nan),
            "kv_cold_start_s": np.where(finished, rows["kv_cold_start_s"], np.nan),
            "blocked_s": np.where(finished, rows["blocked_s"], np.nan),
            "preemptions": rows["preemptions"].copy(),
            "migrations": rows["migrations"].copy(),
        }
        return pd.DataFrame(columns, copy=False)


class RowLog(RequestRows):
    """Rows in the order in which requests end, for `take` of the rows of another process."""

    def __init__(self, trace: Trace) -> None:
        super().__init__(trace)
        self._ids = array("q")
        self._cached_tokens: dict[int, int] = {}  # of requests that have no row yet

    def _at(self, id: i64) -> i64:
        """Add a row; return where it begins."""
        at: i64 = len(self._rows)
        self._rows += _empty
        _pack_tokens(self._rows, at + TOKENS_AT, self._cached_tokens.pop(id, 0))
        self._ids.append(id)
        return at

    def put_cached_tokens(self, id: int, tokens: int) -> None:
        self._cached_tokens[id] = tokens

    def share(self) -> RowsShare:
        """Return the ids, rows and reasons since the last call."""
        ids, rows = np.array(self._ids, dtype=np.int64), bytes(self._rows)
        self._ids, self._rows = array("q"), bytearray()
        return ids, rows, list(self._reasons), dict(self._cached_tokens)
