"""What a server did with the requests of a benchmark or a log: when each came, and when its tokens did."""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from simlora.config.engine_flags import ENGINES, model_named
from simlora.core.arrays import Floats, Ints
from simlora.core.errors import InputError
from simlora.core.random import stream
from simlora.core.trace import AdapterSpec, Trace
from simlora.metrics.summary import distribution
from simlora.workload.logs.faults import Fault, of_rows
from simlora.workload.logs.guessing import MEASURED, OURS, UNITS, Source, given_map, guess, missing, tool_of
from simlora.workload.logs.importing import AT_ONCE, imported
from simlora.workload.logs.reading import Log, read_log
from simlora.workload.logs.times import numbers, times, unit_in
from simlora.workload.logs.wishes import Wishes
from simlora.workload.table import Table

KNOWN = (*OURS, *MEASURED)
IN_UNITS = {
    "ttfts": "s",
    "itls": "s",
    "request_latency": "s",
    "metrics.time_to_first_token.value": "ms",
    "metrics.request_latency.value": "ms",
}
"""Units of columns whose names do not end with one: vLLM's and SGLang's, GuideLLM's and AIPerf's."""
DURATION = "seconds, at least 0"
ROUNDED_S = 1e-3
"""A latency may be so much shorter than the TTFT: both are rounded."""
NO_TTFT = (
    "the time to the first token: --map ttft=COLUMN:ms, or first_token=COLUMN; vllm bench serve writes it with "
    "--save-detailed, sglang.bench_serving with --output-details"
)


@dataclass(frozen=True)
class Measured:
    """A server's run: its requests as a `trace`, and of each [requests] when its tokens came.

    `latency_s` is NaN where the log has no end of a request. `gaps_s` are the times between the tokens of each request,
    None where the log has none. `notices` are sentences about what was left out or drawn. `model` is the base model as
    the log or --base-model names it and `engine` one of ENGINES, None where nothing says it.
    """

    path: str
    tool: str
    trace: Trace
    ttft_s: Floats
    latency_s: Floats
    gaps_s: Sequence[Floats] | None
    notices: tuple[str, ...]
    model: str | None = None
    engine: str | None = None

    @cached_property
    def tpot_s(self) -> Floats:
        """Seconds per output token after the first [requests], NaN for answers of one token."""
        after = np.asarray(self.trace.output_tokens, dtype=np.float64) - 1
        return np.where(after > 0, (self.latency_s - self.ttft_s) / np.maximum(after, 1), np.nan)

    @property
    def span_s(self) -> float:
        """Seconds from the first request to the last token."""
        ends_s = self.trace.arrival_s + np.where(np.isnan(self.latency_s), self.ttft_s, self.latency_s)
        return float(ends_s.max() - self.trace.arrival_s[0])

    def summary(self) -> dict[str, Any]:
        """Return what summary.json has of a simulated run, as far as the log tells it."""
        found: dict[str, Any] = {"ttft_s": distribution(self.ttft_s)}
        if not np.isnan(self.latency_s).all():
            found["tpot_s"] = distribution(self.tpot_s)
            found["latency_s"] = distribution(self.latency_s)
            found["throughput_rps"] = len(self.trace) / self.span_s
            found["throughput_tps"] = float(self.trace.output_tokens.sum()) / self.span_s
        if self.gaps_s is not None:
            found["tbt_s"] = distribution(np.concatenate(self.gaps_s))
        return found


@dataclass(frozen=True)
class Unsaid:
    """What a benchmark's result does not say: columns by another name, adapters and their ranks.

    `adapters`: each request had one of so many, as likely as another, of rank `wishes.rank`.
    """

    columns: Sequence[str] = ()
    wishes: Wishes = field(default_factory=Wishes)
    adapters: int | None = None


def read_measured(path: str, unsaid: Unsaid) -> Measured:
    """Read what a server did. Raises Faulty, with all faults, for a log that does not say it."""
    given, faults = given_map(unsaid.columns, KNOWN)
    log = read_log(path, [source.column for source in given.values() if source], measured=True)
    sources, wrong = guess(log.names, log.has_cells, given)
    did, more = guess(log.names, log.has_cells, given, MEASURED)
    faults += [*wrong, *more]
    if "ttft" not in did and "first_token" not in did and "token_times" not in did and log.names:
        faults.append(Fault("ttft", f"no column for it among {_some(log.names)}", NO_TTFT))
    wishes, notices = _with_rate(log, sources, unsaid.wishes, len(did) > 0), []
    if wishes.rate_rps is not None:
        sources.pop("arrival", None)
    if len(log.table):
        faults += missing(log.names, sources, given, (wishes.rate_rps, log.rate_rps))

    def of_durations(table: Table) -> list[Fault]:
        found: list[Fault] = []
        if "arrival" not in sources or not times(table, sources["arrival"]).faults:
            _durations(log, sources, did, np.searchsorted(log.table.rows, table.rows), found)
        return found

    checked = imported(log, sources, _of_adapters(wishes, sources, unsaid), faults, of_durations)
    at = np.searchsorted(log.table.rows, checked.rows)
    ttft_s, latency_s, gaps_s = _durations(log, sources, did, at, [])
    trace, said = checked.trace, list(checked.notices)
    if log.max_concurrency and "arrival" not in sources and np.isinf(wishes.rate_rps or 0):
        trace, at = _one_after_another(trace, latency_s, log.max_concurrency)
        ttft_s, latency_s = ttft_s[at], latency_s[at]
        gaps_s = None if gaps_s is None else [gaps_s[each] for each in at]
        said = [one for one in said if not one.startswith(AT_ONCE)]
        notices.append(
            f"the log has no times of arrival; each request is sent when one of {log.max_concurrency} ends, as "
            "max_concurrency says"
        )
    if unsaid.adapters and not trace.adapters:
        trace = _with_adapters(trace, unsaid)
        notices.append(
            f"the log names no adapters: each request has one of {unsaid.adapters}, drawn as likely as another"
        )
    said = [one for one in said if not (trace.adapters and "no column names an adapter" in one)]
    bases = (name for name in unsaid.wishes.base_models if model_named(name))
    engine = next((name for name in ENGINES if (log.backend or "").startswith(name)), None)
    return Measured(
        path,
        tool_of(log.names),
        trace,
        ttft_s,
        latency_s,
        gaps_s,
        (*said, *notices),
        log.model or next(bases, None),
        engine,
    )


# Arrivals and adapters that the log does not name --------------------------------------------


def _with_rate(log: Log, sources: Mapping[str, Source], wishes: Wishes, is_run: bool) -> Wishes:
    """Return the rate by which arrivals are drawn: where the log has none, that which it says of itself."""
    if wishes.rate_rps is not None or "arrival" in sources or not is_run or not log.rate_rps:
        return wishes
    return replace(wishes, rate_rps=log.rate_rps, rate_from="the log's request_rate")


def _one_after_another(trace: Trace, latency_s: Floats, most: int) -> tuple[Trace, Ints]:
    """Return requests that are sent when one of `most` ends, and in which order they stand then."""
    ends_s: list[float] = []
    sent_s = np.zeros(len(trace))
    for at, seconds in enumerate(latency_s.tolist()):
        if len(ends_s) >= most:
            sent_s[at] = heapq.heappop(ends_s)
        heapq.heappush(ends_s, sent_s[at] + seconds)
    order = np.argsort(sent_s, kind="stable")
    columns = {
        name: getattr(trace, name)[order]
        for name in ("adapter", "prompt_tokens", "output_tokens", "max_output_tokens")
    }
    return replace(trace, arrival_s=sent_s[order], session=None, block_hashes=None, **columns), order


def _of_adapters(wishes: Wishes, sources: dict[str, Source], unsaid: Unsaid) -> Wishes:
    """Return wishes for a log whose adapters are drawn: what it names is the base model then."""
    if unsaid.adapters is None:
        return wishes
    if wishes.rank is None:
        raise InputError("--adapters needs --rank: the rank of every adapter")
    sources.pop("adapter", None)
    sources.pop("rank", None)
    return wishes


def _with_adapters(trace: Trace, unsaid: Unsaid) -> Trace:
    count, rank = unsaid.adapters, unsaid.wishes.rank
    assert count is not None, "adapters are counted"
    assert rank is not None, "adapters are drawn with a rank"
    drawn = stream(0, "adapters").integers(count, size=len(trace))
    specs = tuple(AdapterSpec(f"adapter-{at}", rank) for at in range(count))
    return replace(trace, adapter=drawn, adapters=specs)


# Durations -----------------------------------------------------------------------------------


def _durations(
    log: Log, sources: Mapping[str, Source], did: Mapping[str, Source], at: Ints, faults: list[Fault]
) -> tuple[Floats, Floats, list[Floats] | None]:
    """Return TTFT, latency [requests] and the gaps between tokens of each request of the log's rows `at`.

    Cells that are no durations, and latencies shorter than the TTFT, are faults.
    """
    gaps_s: list[Floats] | None = None
    if "token_times" in did and "arrival" in sources:
        last: Source | None = did["token_times"]
        came_s = _lists(log, did["token_times"], at, faults)
        since_s = _moments(log, sources["arrival"], at)
        gaps_s = [np.diff(each) for each in came_s]
        ttft_s = np.array([each[0] if len(each) else np.nan for each in came_s]) - since_s
        latency_s = np.array([each[-1] if len(each) else np.nan for each in came_s]) - since_s
    else:
        ttft_s = _duration(log, sources, did, ("ttft", "first_token"), at, faults)
        last = did.get("gaps") or did.get("latency") or did.get("end")
        if "gaps" in did:
            gaps_s = _lists(log, did["gaps"], at, faults)
            latency_s = ttft_s + np.array([each.sum() for each in gaps_s])
        else:
            latency_s = _duration(log, sources, did, ("latency", "end"), at, faults)
    if last is not None and all(fault.row is not None for fault in faults):  # the units are known
        short, firsts_s = np.zeros(len(log.table), dtype=np.bool_), np.zeros(len(log.table))
        short[at], firsts_s[at] = (latency_s >= 0) & (latency_s < ttft_s - ROUNDED_S), ttft_s
        faults += of_rows(
            log.table,
            last.column,
            short,
            lambda row: f"no less than the TTFT of that row, {firsts_s[row]:.4g} s",
        )
    return ttft_s, np.maximum(latency_s, ttft_s), gaps_s


def _duration(
    log: Log,
    sources: Mapping[str, Source],
    did: Mapping[str, Source],
    names: tuple[str, str],
    at: Ints,
    faults: list[Fault],
) -> Floats:
    """Return a duration since the request came [requests]: a column of it, or the moment when it ended."""
    duration, moment = names
    table, bad = log.table, np.zeros(len(log.table), dtype=np.bool_)
    if duration in did:
        source = did[duration]
        found = table.columns[source.column].mapped(lambda cells: numbers(cells).astype(np.float64))
        bad[at] = ~(found[at] >= 0)
        faults += of_rows(table, source.column, bad, DURATION)
        return np.asarray(found[at] * (UNITS[_unit(source, faults)] / 1e9))
    if moment in did and "arrival" in sources:
        ends, begins = times(table, did[moment]), times(table, sources["arrival"])
        since_s = (ends.since_s - begins.since_s)[at] + (ends.first_ns - begins.first_ns) / 1e9
        bad[at] = since_s < 0
        faults += of_rows(table, did[moment].column, bad, f"a time after {sources['arrival'].column}")
        return since_s
    return np.full(len(at), np.nan)


def _moments(log: Log, source: Source, at: Ints) -> Floats:
    """Return moments as seconds from their column's own start [requests]."""
    found = times(log.table, source)
    since_s = found.since_s + found.first_ns / 1e9
    return np.asarray(since_s[at])


def _lists(log: Log, source: Source, at: Ints, faults: list[Fault]) -> list[Floats]:
    """Return a column of lists of seconds, of each request; one that is no list is a fault, and empty."""
    scale = UNITS[_unit(source, faults, default="s")] / 1e9
    cells = [*log.table.columns[source.column]]
    read = [_list(cells[row]) for row in at.tolist()]
    bad = np.zeros(len(cells), dtype=np.bool_)
    bad[at] = [each is None for each in read]
    faults += of_rows(log.table, source.column, bad, "a list of numbers")
    return [np.zeros(0) if each is None else each * scale for each in read]


def _list(cell: Any) -> Floats | None:
    """Return a cell's numbers, none of an empty one; None where it holds something else."""
    try:
        found = np.asarray(() if cell is None else cell, dtype=np.float64)
    except (TypeError, ValueError):
        return None
    return found if found.ndim == 1 else None


def _unit(source: Source, faults: list[Fault], default: str | None = None) -> str:
    """Return the unit of a column: as the user has said it, as its name ends, or as its tool writes it."""
    name = source.column
    unit = source.unit or unit_in(name) or IN_UNITS.get(name) or default
    if unit is None:
        faults.append(Fault(name, "a duration without a unit", f"one with a unit: --map …={name}:ms, or :s"))
    return unit or "s"


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")
