"""Records a run: one row per request, counters, and samples of what replicas hold."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from enum import IntEnum
from typing import Any

import numpy as np
import pandas as pd
from mypy_extensions import i64, mypyc_attr

from simlora.core.adapter import Adapter
from simlora.core.request import Request
from simlora.core.total import total
from simlora.core.trace import BASE_MODEL, Trace
from simlora.metrics.histogram import TokenGaps
from simlora.metrics.journal import Journal
from simlora.metrics.missed import Missed
from simlora.metrics.timeline import BOUNDARY, CACHE, REGION, Timeline
from simlora.metrics.tracing import Level, Switched, Tracing
from simlora.metrics.usage import CachedUsage, Usage


class Status(IntEnum):
    """How a request ended."""

    UNFINISHED = 0
    FINISHED = 1
    ABORTED = 2
    REJECTED = 3


Sample = tuple[Any, ...]
"""A replica, a time, and the levels BOUNDARY of metrics/timeline.py, then CACHE and REGION as far as there are any."""
_NAN = float("nan")


@mypyc_attr(allow_interpreted_subclasses=True)
class Recorder:
    """Columns indexed by request id; a request is written once, when it ends.

    `region`: adapters have memory of their own; `cache`: there is a prefix cache; `grows`: the KV of a running request
    grows by one slot per token. `tracing`, if given, also gets all events; `missed` counts requests that end outside
    the SLO. With `driven`, requests are submitted from outside: `expect` each, and `close` after the last.
    `on_boundary` is called with each sample.
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
        n = 0 if driven else len(trace)
        self._requests: i64 = -1 if driven else n  # that are to come; -1: not known
        self._trace = trace
        self._status = array("b", bytes(n))
        self._replica = array("i", [-1]) * n
        self._admitted_s = array("d", [_NAN]) * n
        self._first_token_s = array("d", [_NAN]) * n
        self._finish_s = array("d", [_NAN]) * n
        self._cold_start_s = array("d", [0.0]) * n
        self._kv_cold_start_s = array("d", [0.0]) * n
        self._blocked_s = array("d", [0.0]) * n
        self._cached_tokens = array("i", [0]) * n
        self._preemptions = array("i", [0]) * n
        self._migrations = array("i", [0]) * n
        self._reasons: dict[int, str] = {}
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
        self._missed: tuple[Missed, ...] = () if missed is None else (missed,)
        self.ended = 0
        self.last_s = 0.0
        self.boundaries = 0
        self.token_steps = 0
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

    def expect(self) -> None:
        """Add a row for a request that is submitted from outside."""
        for reals in (self._admitted_s, self._first_token_s, self._finish_s):
            reals.append(_NAN)
        for seconds in (self._cold_start_s, self._kv_cold_start_s, self._blocked_s):
            seconds.append(0.0)
        for counts in (self._status, self._cached_tokens, self._preemptions, self._migrations):
            counts.append(0)
        self._replica.append(-1)

    def close(self, trace: Trace) -> None:
        """No more requests are submitted; `trace` has those that were."""
        self._trace, self._requests = trace, len(trace)

    def finish(self, request: Request, replica: int, now_s: float) -> None:
        """Record a request that has its last token."""
        id = request.id
        self._admitted_s[id] = request.admitted_s
        self._first_token_s[id] = request.first_token_s
        self._cold_start_s[id] = request.cold_start_s
        self._kv_cold_start_s[id] = request.kv_cold_start_s
        self._blocked_s[id] = request.blocked_s
        self._preemptions[id] = request.preemptions
        self._migrations[id] = request.migrations
        # Last, so that an interrupt never leaves an incomplete row that counts as finished.
        self._end(request, Status.FINISHED, replica, now_s)

    def abort(self, request: Request, replica: int, now_s: float, reason: str) -> None:
        """Record a request that the system aborted."""
        self._reasons[request.id] = reason
        self._end(request, Status.ABORTED, replica, now_s)

    def reject(self, request: Request, replica: int, now_s: float, reason: str) -> None:
        """Record a request that was rejected at arrival."""
        self._reasons[request.id] = reason
        self._end(request, Status.REJECTED, replica, now_s)

    def left_running(self, request: Request, replica: int, now_s: float) -> None:
        """Record the state of an admitted request that is unfinished when the clock stops.

        It may still be waiting for its weights, so that its `admitted_s` is unset or in the future.
        """
        id = request.id
        self._replica[id] = replica
        if 0.0 <= request.admitted_s <= now_s:
            self._admitted_s[id] = request.admitted_s
        if request.first_token_s >= 0.0:
            self._first_token_s[id] = request.first_token_s
        self._preemptions[id] = request.preemptions
        self._migrations[id] = request.migrations

    def _end(self, request: Request, status: Status, replica: int, now_s: float) -> None:
        assert self._status[request.id] == Status.UNFINISHED, f"request {request.id} ends twice"
        self._replica[request.id] = replica
        self._finish_s[request.id] = now_s
        self._status[request.id] = status
        self.ended += 1
        self.last_s = now_s
        for missed in self._missed:
            if status is not Status.REJECTED:
                finished, first_token_s = status is Status.FINISHED, self._first_token_s[request.id]
                missed.ended(request.id, finished, first_token_s, now_s)

    def boundary(
        self,
        replica: i64,
        now_s: float,
        running: i64,
        waiting: i64,
        kv_tokens: i64,
        adapter_tokens: i64,
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
            self._cached_tokens[request.id] = request.cached_tokens
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
        trace = self._trace
        status = np.frombuffer(self._status, dtype=np.int8)
        finished = status == Status.FINISHED
        arrival = trace.arrival_s
        first = np.frombuffer(self._first_token_s)
        admitted = np.frombuffer(self._admitted_s)
        finish = np.frombuffer(self._finish_s)
        names = np.array([a.name for a in trace.adapters] + [""], dtype=object)
        ranks = np.array([a.rank for a in trace.adapters] + [0], dtype=np.int64)
        output = trace.output_tokens
        with np.errstate(invalid="ignore", divide="ignore"):
            tpot = np.where(output > 1, (finish - first) / (output - 1), np.nan)
        labels = np.array([s.name.lower() for s in Status], dtype=object)
        reasons = np.full(len(trace), "", dtype=object)
        for id, reason in self._reasons.items():
            reasons[id] = reason
        return pd.DataFrame(
            {
                "request_id": np.arange(len(trace), dtype=np.int64),
                "adapter": pd.array(names[trace.adapter], dtype="str"),
                "rank": ranks[trace.adapter],
                "prompt_tokens": trace.prompt_tokens,
                "output_tokens": output,
                "cached_tokens": np.frombuffer(self._cached_tokens, dtype=np.int32),
                "replica": np.frombuffer(self._replica, dtype=np.int32),
                "arrival_s": arrival,
                "admitted_s": admitted,
                "first_token_s": first,
                "finish_s": finish,
                "status": pd.array(labels[status], dtype="str"),
                "reason": pd.array(reasons, dtype="str"),
                "ttft_s": first - arrival,
                "tpot_s": tpot,
                "latency_s": np.where(finished, finish - arrival, np.nan),
                "queue_s": admitted - arrival,
                "cold_start_s": np.where(finished, np.frombuffer(self._cold_start_s), np.nan),
                "kv_cold_start_s": np.where(finished, np.frombuffer(self._kv_cold_start_s), np.nan),
                "blocked_s": np.where(finished, np.frombuffer(self._blocked_s), np.nan),
                "preemptions": np.frombuffer(self._preemptions, dtype=np.int32),
                "migrations": np.frombuffer(self._migrations, dtype=np.int32),
            }
        )
