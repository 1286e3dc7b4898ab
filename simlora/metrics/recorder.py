"""Records a run: one row per request, counters, and samples of what replicas hold."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pandas as pd
from mypy_extensions import i64

from simlora.core.adapter import Adapter
from simlora.core.request import Request
from simlora.core.total import total
from simlora.core.trace import BASE_MODEL, Trace
from simlora.metrics.histogram import TokenGaps
from simlora.metrics.journal import Journal
from simlora.metrics.missed import Missed
from simlora.metrics.rows import (
    ABORTED,
    FINISHED,
    NAN,
    REJECTED,
    UNFINISHED,
    RequestRows,
    RowLog,
    RowsShare,
    Write,
)
from simlora.metrics.timeline import BOUNDARY, CACHE, REGION, Timeline
from simlora.metrics.tracing import Level, Switched, Tracing
from simlora.metrics.usage import CachedUsage, Usage

OnLost = Callable[[Request, int, str], None]
"""Is called with a request that was aborted or rejected, which of both (metrics/rows.py), and the reason."""
Sample = tuple[Any, ...]
"""A replica, a time, and the levels BOUNDARY of metrics/timeline.py, then CACHE and REGION as far as there are any."""


class Recorder:
    """Rows by request id, each written once, when its request ends; see RequestRows.

    `region`: adapters have memory of their own; `cache`: there is a prefix cache; `grows`: the KV of a running request
    grows by one slot per token. `tracing`, if given, also gets all events; `missed` counts requests that end outside
    the SLO. With `driven`, requests are submitted from outside, and `close` comes after the last. `on_boundary` is
    called with each sample, `on_lost` with each request that is aborted or rejected.
    """

    def __init__(
        self,
        trace: Trace,
        replicas: int,
        timeline: bool = True,
        region: bool = False,
        cache: bool = False,
        grows: bool = True,
        tracing: Tracing | None = None,
        missed: Missed | None = None,
        driven: bool = False,
    ) -> None:
        self._requests: i64 = -1 if driven else len(trace)  # that are to come; -1: not known
        self._rows: RequestRows = RequestRows(trace)
        self.token_gaps = TokenGaps()
        samples = (*BOUNDARY, *(CACHE if cache else ()), *(REGION if region else ()))
        self.timeline = Timeline(replicas, samples) if timeline else None
        self.usage = CachedUsage(replicas, grows) if cache else Usage(replicas, grows)
        self.journal = Journal()
        self.tracing = tracing
        self._cache = cache
        self.on_boundary: tuple[Callable[[Sample], None], ...] = (
            () if tracing is None else (self._trace_level,)
        )
        self.on_lost: tuple[OnLost, ...] = ()
        self._missed: tuple[Missed, ...] = () if missed is None else (missed,)
        self.ended = 0
        self.last_s = 0.0
        self.boundaries = 0
        self.token_steps = 0
        self.draft_tokens = self.accepted_tokens = self.verified = 0
        self.preemptions = 0
        self.prompt_tokens = 0
        self.cached_tokens = 0
        self.adapter_hits = 0
        self.adapter_misses = 0
        self.adapter_loads = 0
        self.adapter_load_bytes = 0
        self.disk_loads = 0
        self.remote_loads = self.remote_load_bytes = self.storage_loads = 0
        self.reloads = 0
        self.switches = 0
        self.switch_s = 0.0
        self._merged_s = 0.0
        self._merged_since_s: dict[int, float] = {}  # by replica

    def all_ended(self) -> bool:
        """Whether every request has ended."""
        return self.ended == self._requests

    def close(self, requests: int, trace: Trace | None) -> None:
        """No more requests are submitted; `trace` has those that were, unless ended ones are forgotten."""
        self._requests = requests
        if trace is not None:
            self._rows.trace = trace

    def forget(self) -> int:
        """Forget the rows before the first request that has not ended, and the journal; return that request's id."""
        self.journal.forget()
        return self._rows.forget()

    def finish(self, request: Request, replica: int, now_s: float) -> None:
        """Record a request that has its last token."""
        self._rows.put(
            request.id,
            FINISHED,
            replica,
            0,
            request.preemptions,
            request.migrations,
            now_s,
            request.admitted_s,
            request.first_token_s,
            request.cold_start_s,
            request.kv_cold_start_s,
            request.blocked_s,
        )
        self.ended += 1
        self.last_s = max(self.last_s, now_s)
        for missed in self._missed:
            missed.ended(request.id, True, request.first_token_s, now_s)

    def abort(self, request: Request, replica: int, now_s: float, reason: str) -> None:
        """Record a request that the system aborted."""
        self._lose(request, ABORTED, replica, now_s, reason)
        for missed in self._missed:
            missed.ended(request.id, False, NAN, now_s)

    def reject(self, request: Request, replica: int, now_s: float, reason: str) -> None:
        """Record a request that was rejected at arrival."""
        self._lose(request, REJECTED, replica, now_s, reason)

    def _lose(self, request: Request, status: int, replica: int, now_s: float, reason: str) -> None:
        code = self._rows.code(reason)
        self._rows.put(request.id, status, replica, code, 0, 0, now_s, NAN, NAN, 0.0, 0.0, 0.0)
        self.ended += 1
        self.last_s = max(self.last_s, now_s)
        for on_lost in self.on_lost:
            on_lost(request, status, reason)

    def left_running(self, request: Request, replica: int, now_s: float) -> None:
        """Record the state of an admitted request that is unfinished when the clock stops.

        It may still be waiting for its weights, so that its `admitted_s` is unset or in the future.
        """
        admitted_s = request.admitted_s if 0.0 <= request.admitted_s <= now_s else NAN
        first_token_s = request.first_token_s if request.first_token_s >= 0.0 else NAN
        counts = request.preemptions, request.migrations
        self._rows.put(
            request.id, UNFINISHED, replica, 0, *counts, NAN, admitted_s, first_token_s, 0.0, 0.0, 0.0
        )

    def boundary(
        self,
        replica: i64,
        now_s: float,
        running: int,
        waiting: int,
        kv_tokens: int,
        adapter_tokens: int,
        more: tuple[int, ...],
    ) -> None:
        """Record what a replica holds from this iteration boundary until its next one.

        `more`: the levels CACHE of metrics/timeline.py where there is a prefix cache, then REGION where adapters have
        memory of their own.
        """
        self.boundaries += 1
        if self.ended == self._requests and now_s > self.last_s:
            return  # a swapper continues after the last request has ended
        self.usage.hold(replica, now_s, kv_tokens + adapter_tokens, more, self.token_steps)
        if self.timeline is not None:
            self.timeline.add(replica, now_s, running, waiting, kv_tokens, adapter_tokens, more)
        for listener in self.on_boundary:
            listener((replica, now_s, running, waiting, kv_tokens, adapter_tokens, *more))

    def _trace_level(self, sample: Sample) -> None:
        """Tell the tracing of the levels; without a prefix cache no KV is idle, or on the host."""
        assert self.tracing is not None, "a sink for levels without tracing"
        idle, host = (sample[6], sample[8]) if self._cache else (0, 0)
        self.tracing.add(Level._make((*sample[:6], idle, host)))

    def switch(self, replica: int, now_s: float, seconds: float, merged: Adapter | None) -> None:
        """Record a switch of `seconds`; `merged` is the adapter in the weights from now on, if any."""
        self.switches += 1
        self.switch_s += seconds
        self._merged_s += now_s - self._merged_since_s.pop(replica, now_s)
        if merged is not None:
            self._merged_since_s[replica] = now_s
        if self.tracing is not None:
            self.tracing.add(Switched(replica, now_s, seconds, merged))
        if self.timeline is not None:
            name, id = ("", BASE_MODEL) if merged is None else (merged.name, merged.id)
            self.journal.switch(now_s, replica, name, id)

    def merged_s(self, until_s: float) -> float:
        """Return the seconds until `until_s` with a merged adapter, summed over all replicas."""
        return self._merged_s + total(
            max(until_s - since_s, 0.0) for since_s in self._merged_since_s.values()
        )

    def note(self, replica: int, now_s: float, name: str, value: float) -> None:
        """Record a scheduler's note."""
        if self.timeline is not None:
            self.journal.note(now_s, replica, name, value)

    def prefix_lookup(self, request: Request) -> None:
        """Count the prompt and cached tokens of a request that starts, the first time it does."""
        if request.admitted_s < 0.0:
            self._rows.put_cached_tokens(request.id, request.cached_tokens)
            self.cached_tokens += request.cached_tokens
            self.prompt_tokens += request.prompt_tokens

    @property
    def prefix_hit_rate(self) -> float | None:
        """Share of the prompt tokens of started requests that were cached; None without a prefix cache or requests."""
        return self.cached_tokens / self.prompt_tokens if self.prompt_tokens else None

    def fetched(self, size_bytes: int, from_storage: bool) -> None:
        """Count a host's fetch of an adapter that it did not hold, from another host or from storage."""
        self.storage_loads += from_storage
        self.remote_loads += not from_storage
        self.remote_load_bytes += 0 if from_storage else size_bytes

    def adapter_load(self, size_bytes: int, from_disk: bool = False) -> None:
        """Count a load from host to device that has started; `from_disk`: it begins with a read from disk."""
        self.adapter_loads += 1
        self.disk_loads += from_disk
        self.adapter_load_bytes += size_bytes

    def adapter_reloads(self, count: int, size_bytes: int, from_disk: bool) -> None:
        """Count adapters in use that were evicted and are loaded again."""
        self.adapter_loads += count
        self.disk_loads += count * from_disk
        self.adapter_load_bytes += size_bytes
        self.reloads += count

    @property
    def adapter_hit_rate(self) -> float | None:
        """Share of admissions that found their adapter; None without admissions."""
        lookups = self.adapter_hits + self.adapter_misses
        return self.adapter_hits / lookups if lookups else None

    def requests(self) -> pd.DataFrame:
        """Return the table of requests.parquet: one row per request, in order of id."""
        return self._rows.frame()

    def stream(self, write: Write, group: int) -> None:
        """Give `write` so many rows at a time, as their requests end, and the last ones at `flush`."""
        self._rows.stream(write, group)

    def log_rows(self) -> RowLog:
        """Have the rows collected from now on, for `take_rows` of another process; return where they are."""
        self._rows = log = RowLog(self._rows.trace)
        return log

    def take_rows(self, share: RowsShare) -> None:
        """Take over the rows that another process has collected."""
        self.ended += self._rows.take(share)

    def flush(self) -> None:
        """Write the rows that were not written when their requests ended; unfinished ones are among them."""
        self._rows.flush()
