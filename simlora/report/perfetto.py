"""timeline.json.gz: a run as ui.perfetto.dev and chrome://tracing open it, in Chrome's trace event format.

A replica is a process, with a lane for its iterations, one for each direction of PCIe, and one for what is merged into
the weights; its queue, its batch and its HBM are counters. The adapters in HBM are a process of their own beside it,
where each lies in the first lane that is free: as many lanes as there were adapters at once.
"""

from __future__ import annotations

import gzip
import heapq
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from simlora.core.adapter import Adapter
from simlora.metrics.tracing import (
    TO_GPU,
    TO_HOST,
    Came,
    Copied,
    Happening,
    Left,
    Level,
    Ran,
    ReplicaFailed,
    Switched,
    Traced,
)

ITERATIONS, MERGED = "iterations", "merged adapter"
LANES = (ITERATIONS, f"PCIe, {TO_GPU}", f"PCIe, {TO_HOST}", MERGED)
QUEUE, BATCH, HBM, CACHE = (
    "requests waiting",
    "requests running",
    "HBM (token slots)",
    "cached KV (token slots)",
)
WAITS, SWITCHES, BROKE_OFF, LOADS = "waits for weights or KV", "merges or unmerges", "broken off", "loads"


class Slice(NamedTuple):
    """Something that took a while in a lane of a replica, or, where that is "", in HBM: loading until `ready_s`."""

    replica: int
    lane: str
    begin_s: float
    until_s: float
    name: str
    args: dict[str, Any]
    ready_s: float = 0.0


def write_perfetto(path: Path, traced: Traced) -> None:
    """Write what was kept; the same bytes for the same run."""
    encode = json.JSONEncoder(separators=(",", ":")).encode
    with path.open("wb") as file, gzip.GzipFile("", "wb", 6, file, mtime=0) as packed:
        packed.write(b'{"displayTimeUnit":"ms","traceEvents":[\n')
        for place, event in enumerate(trace_events(traced)):
            packed.write(f"{',' * bool(place)}{encode(event)}\n".encode())
        packed.write(b"]}\n")


def trace_events(traced: Traced) -> Iterator[dict[str, Any]]:
    """Yield the names of processes and lanes, and then what happened, in order of time; times are in microseconds."""
    slices = [*_iterations(traced.happened), *_lasting(traced)]
    slices.sort(key=lambda slice: (slice.begin_s, -slice.until_s))
    drawn = [*_drawn(slices), *_levels(traced.happened)]
    if traced.cut:
        name = f"cut: the first {len(traced.happened):,} events are kept"
        drawn.append({"ph": "i", "s": "g", "pid": 0, "tid": 0, "ts": _us(traced.until_s), "name": name})
    drawn.sort(key=lambda event: (event["ts"], -event.get("dur", 0.0)))
    yield from _names(drawn)
    yield from drawn


def _us(time_s: float) -> float:
    """Return microseconds, in whole nanoseconds: what ends when something else begins still does so."""
    return round(time_s * 1e9) / 1e3


def _iterations(happened: Iterable[Happening]) -> Iterator[Slice]:
    """Yield what each iteration waited for, what was merged before it, and the iterations."""
    switches: dict[int, float] = {}  # seconds of the next iteration, by replica
    for happening in happened:
        match happening:
            case Switched(replica, _, seconds, _):
                switches[replica] = seconds
            case Ran(replica, since_s, begin_s, until_s, requests, tokens, batch, steps):
                merges_s = max(begin_s - switches.pop(replica, 0.0), since_s)
                kind = "decode" if not requests else "mixed" if batch else "prefill"
                args = {
                    "requests prefilled": requests,
                    "prompt tokens": tokens,
                    "batch": batch,
                    "steps": steps,
                }
                for name, from_s, to_s in (
                    (WAITS, since_s, merges_s),
                    (SWITCHES, merges_s, begin_s),
                    (kind, begin_s, until_s),
                ):
                    if from_s < to_s:
                        yield Slice(replica, ITERATIONS, from_s, to_s, name, args if name == kind else {})
            case ReplicaFailed(replica, time_s, since_s) if since_s < time_s:
                yield Slice(replica, ITERATIONS, since_s, time_s, BROKE_OFF, {})


def _lasting(traced: Traced) -> Iterator[Slice]:
    """Yield copies, adapters in HBM and merged ones, the last first: so it is known when each came to its end.

    That is, of what had none, the end of the trace, or when its replica failed.
    """
    ends_s: dict[int, float] = {}
    left_s: dict[tuple[int, int], float] = {}
    switched_s: dict[int, float] = {}
    for happening in reversed(traced.happened):
        until_s = ends_s.get(happening.replica, traced.until_s)
        match happening:
            case ReplicaFailed(replica, time_s, _):
                ends_s[replica] = switched_s[replica] = time_s
            case Copied(replica, link, begin_s, done_s, what):
                if begin_s < until_s or replica not in ends_s:
                    done_s = min(done_s, ends_s.get(replica, done_s))
                    yield Slice(replica, f"PCIe, {link}", begin_s, done_s, *_what(what))
            case Left(replica, time_s, adapter_id):
                left_s[replica, adapter_id] = time_s
            case Came(replica, time_s, adapter, ready_s):
                gone_s = max(left_s.pop((replica, adapter.id), until_s), time_s)
                args = {"rank": adapter.rank, "token slots": adapter.kv_tokens, "bytes": adapter.size_bytes}
                yield Slice(replica, "", time_s, gone_s, adapter.name, args, min(ready_s, gone_s))
            case Switched(replica, time_s, _, merged):
                if merged is not None:
                    last_s = max(switched_s.get(replica, until_s), time_s)
                    yield Slice(replica, MERGED, time_s, last_s, merged.name, {"rank": merged.rank})
                switched_s[replica] = time_s


def _what(what: Adapter | int | None) -> tuple[str, dict[str, Any]]:
    if isinstance(what, Adapter):
        return what.name, {"rank": what.rank, "bytes": what.size_bytes}
    return ("adapters in use, again", {}) if what is None else ("KV", {"tokens": what})


# Chrome's events ------------------------------------------------------------------------


def _drawn(slices: Iterable[Slice]) -> Iterator[dict[str, Any]]:
    """Yield slices that come in order of time; an adapter in HBM lies in the first lane that is free there."""
    busy: dict[int, list[tuple[float, int]]] = {}
    free: dict[int, list[int]] = {}
    for slice in slices:
        if slice.lane:
            yield _complete(_pid(slice.replica), LANES.index(slice.lane) + 1, slice)
            continue
        taken, lanes = busy.setdefault(slice.replica, []), free.setdefault(slice.replica, [])
        while taken and taken[0][0] <= slice.begin_s:
            heapq.heappush(lanes, heapq.heappop(taken)[1])
        lane = heapq.heappop(lanes) if lanes else len(taken) + 1
        heapq.heappush(taken, (slice.until_s, lane))
        pid = _pid(slice.replica) + 1
        yield _complete(pid, lane, slice)
        if slice.ready_s > slice.begin_s:
            yield _complete(pid, lane, slice._replace(until_s=slice.ready_s, name=LOADS, args={}))


def _pid(replica: int) -> int:
    """Return the number of a replica's process; its HBM has the next one."""
    return 2 * replica + 1


def _complete(pid: int, tid: int, slice: Slice) -> dict[str, Any]:
    ts = _us(slice.begin_s)
    # The difference of two numbers of whole nanoseconds, rounded to one again.
    dur = round(_us(slice.until_s) - ts, 3)
    return {"ph": "X", "pid": pid, "tid": tid, "ts": ts, "dur": dur, "name": slice.name, "args": slice.args}


def _levels(happened: Iterable[Happening]) -> Iterator[dict[str, Any]]:
    """Yield a counter wherever it changes; that of cached KV only where there ever is any."""
    before: dict[tuple[int, str], dict[str, int]] = {}
    for happening in happened:
        if not isinstance(happening, Level):
            continue
        replica, time_s, running, waiting, kv, adapters, idle, host = happening
        cached = {"in HBM, held by no request": idle, "on the host": host}
        for name, args in (
            (BATCH, {"requests": running}),
            (QUEUE, {"requests": waiting}),
            (HBM, {"KV": kv, "adapters": adapters}),
            (CACHE, cached),
        ):
            if before.get((replica, name), {} if name != CACHE else dict.fromkeys(cached, 0)) != args:
                before[replica, name] = args
                yield {
                    "ph": "C",
                    "pid": _pid(replica),
                    "tid": 0,
                    "ts": _us(time_s),
                    "name": name,
                    "args": args,
                }


def _names(drawn: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield what processes and lanes are called, in the order in which they are to stand."""
    lanes = sorted({(event["pid"], event["tid"]) for event in drawn if event["pid"]})
    for pid in dict.fromkeys(pid for pid, _ in lanes):
        replica, beside = divmod(pid - 1, 2)
        name = f"replica {replica}" + ": adapters in HBM" * beside
        yield _meta(pid, 0, "process_name", {"name": name})
        yield _meta(pid, 0, "process_sort_index", {"sort_index": pid})
    for pid, tid in lanes:
        if tid:
            name = f"slot {tid}" if pid % 2 == 0 else LANES[tid - 1]
            yield _meta(pid, tid, "thread_name", {"name": name})
            yield _meta(pid, tid, "thread_sort_index", {"sort_index": tid})


def _meta(pid: int, tid: int, name: str, args: dict[str, Any]) -> dict[str, Any]:
    return {"ph": "M", "pid": pid, "tid": tid, "name": name, "args": args}
