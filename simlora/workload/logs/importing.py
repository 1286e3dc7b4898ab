"""A log checked row by row, and the trace that it is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simlora.core.arrays import Floats, Ints
from simlora.core.errors import InputError
from simlora.core.random import stream
from simlora.core.trace import Trace, narrow
from simlora.workload.blocks import block_hashes, check_prefixes
from simlora.workload.cells import Objects, objects
from simlora.workload.columns import TOKENS_MAX, Flags, empty_cells, labels, nameless
from simlora.workload.logs.adapters import adapters
from simlora.workload.logs.counts import counts
from simlora.workload.logs.faults import SHOWN, WHOLE, Fault, Faulty, of_rows
from simlora.workload.logs.guessing import Source
from simlora.workload.logs.reading import Log
from simlora.workload.logs.times import numbers, times
from simlora.workload.logs.wishes import DROP, REFUSE, Wishes
from simlora.workload.table import Table

WARM_UP = ("warmup",)
"""What AIPerf calls the phase before the one that counts."""
HIT = ("true", "1", "hit")
"""What LiteLLM, or another gateway, writes of an answer that it had kept."""
UNKNOWN, WELL, BAD = 0, 1, 2
"""How a request ended."""
WENT_WELL = ("ok", "success", "successful", "succeeded", "completed", "finished", "true", "1")
FAILED = (
    "failed",
    "failure",
    "error",
    "errored",
    "cancelled",
    "canceled",
    "incomplete",
    "timeout",
    "false",
    "0",
)
STATUS_MUST = f"a code such as 200 or 429, or one of {', '.join((*WENT_WELL[:-1], *FAILED[:-1]))}"
WELL_MUST = "that of a request that went well (--failed drop leaves such rows out)"
NO_ERROR_MUST = "empty (--failed drop leaves such rows out)"
AT_LEAST_1 = "a whole number of tokens, at least 1"
NOTHING = ("", "none", "null", "nan", "false", "[]", "0")
"""What a column of errors has where there was none."""
NO_USAGE = "went well, but lack a count of tokens,"
ASK_FOR_USAGE = "streamed answers have them where the request has stream_options.include_usage"
AT_ONCE = "all requests arrive at once"
BLOCK_TOKENS = (16, 32, 64, 128, 256, 512, 1024, 2048)
"""Sizes of blocks, of which the one is taken that the numbers of a log's hashes fit."""


@dataclass(frozen=True)
class Checked:
    """A log's requests as a trace, and what of the log has been left out or taken to be, as sentences.

    `rows` [requests] is where each of them stands in the file.
    """

    trace: Trace
    notices: tuple[str, ...]
    rows: Ints


def imported(
    log: Log,
    sources: dict[str, Source],
    wishes: Wishes,
    known: Sequence[Fault] = (),
    more: Callable[[Table], Sequence[Fault]] = lambda table: (),
) -> Checked:
    """Return the trace that a log is.

    Raises Faulty for all that is wrong with it, `known` faults and those that `more` finds in the requests that stay
    included.
    """
    faults = [*log.faults, *known]
    table, notices = _without(log.table, sources, "phase", WARM_UP, "were sent to warm up")
    table, cached = _without(table, sources, "cache_hit", HIT, "were answered from a cache, by no engine,")
    table, failed = _without_failed(table, sources, wishes.failed, faults)
    notices += [*cached, *failed]
    if not len(table) and len(log.table):
        why = "every one failed" if failed else "none is left"
        faults.append(
            Fault(WHOLE, f"{len(log.table):,} rows, and {why}", "at least one that an engine served")
        )
    since_s = _arrivals(table, sources, wishes, faults, notices)
    prompts = _tokens(table, sources, "prompt_tokens", faults)
    outputs = _tokens(table, sources, "output_tokens", faults)
    adapter, specs = adapters(table, sources, wishes, faults, notices)
    most = _most(table, sources, outputs, faults)
    sessions = _sessions(table, sources, faults)
    hashes, block_tokens = _hashes(table, sources, prompts, faults)
    faults += more(table)
    if faults:
        raise Faulty(table.path, faults)
    order = np.argsort(since_s, kind="stable")
    back = np.flatnonzero(np.diff(since_s) < 0)
    if len(back):
        notices.append(f"row {table.rows[back[0] + 1]:,} came before the row above it; the rows were sorted")
    trace = Trace(
        arrival_s=since_s[order],
        adapter=narrow(adapter[order]),
        prompt_tokens=narrow(prompts[order]),
        output_tokens=narrow(outputs[order]),
        max_output_tokens=narrow(most[order]),
        adapters=specs,
        session=None if sessions is None else sessions[order].tolist(),
        block_hashes=None if hashes is None else objects(hashes)[order].tolist(),
        hash_block_tokens=block_tokens,
        source=table.path,
    )
    return Checked(trace, tuple(notices), table.rows[order].astype(np.int64))


# Requests that are left out ------------------------------------------------------------------


def _without(
    table: Table, sources: dict[str, Source], ours: str, values: Sequence[str], what: str
) -> tuple[Table, list[str]]:
    """Return the requests of which a column of ours has none of some values, and a sentence about the others."""
    if ours not in sources:
        return table, []
    out = table.columns[sources[ours].column].mapped(
        lambda cells: np.array([str(cell).strip().lower() in values for cell in cells], dtype=np.bool_)
    )
    if not out.any():
        return table, []
    notice = f"{out.sum():,} of {len(table):,} requests {what} and were left out"
    return table.at(np.flatnonzero(~out)), [notice]


def _without_failed(
    table: Table, sources: dict[str, Source], failed: str, faults: list[Fault]
) -> tuple[Table, list[str]]:
    """Return the requests that stay, and a sentence about the others."""
    reasons: list[tuple[str, str, Flags]] = []
    if "status" in sources:
        name = sources["status"].column
        went = table.columns[name].mapped(_went)
        faults += of_rows(table, name, went == UNKNOWN, STATUS_MUST)
        reasons.append((name, WELL_MUST, went == BAD))
    if "error" in sources:
        name = sources["error"].column
        reasons.append((name, NO_ERROR_MUST, table.columns[name].mapped(_is_error)))
    for ours in ("prompt_tokens", "output_tokens"):
        if ours in sources:
            name = sources[ours].column
            reasons.append((name, AT_LEAST_1, table.columns[name].mapped(lambda cells: numbers(cells) == 0)))
    bad = np.zeros(len(table), dtype=np.bool_)
    words = []
    for name, must, flags in reasons:
        new = flags & ~bad
        bad |= flags
        if new.any():
            words += [f"{name} in {new.sum():,}"] if must == NO_ERROR_MUST else _counted(table, name, new)
            if failed == REFUSE and must != AT_LEAST_1:  # which is checked of every row that stays
                faults += of_rows(table, name, new, must)
    if failed == REFUSE:
        return table, []
    silent, notices = _silent(table, sources, bad, faults), []
    if words:
        done = "left out" if failed == DROP else "kept"
        notices = [f"{bad.sum():,} of {len(table):,} requests failed and were {done}: {', '.join(words)}"]
    if silent.any():
        notices.append(
            f"{silent.sum():,} of {len(table):,} requests {NO_USAGE} and were left out; {ASK_FOR_USAGE}"
        )
    out = silent | bad if failed == DROP else silent
    return (table.at(np.flatnonzero(~out)) if out.any() else table), notices


def _silent(table: Table, sources: dict[str, Source], failed: Flags, faults: list[Fault]) -> Flags:
    """Return which requests went well and lack a count of tokens; more than half of them are a fault."""
    if "prompt_tokens" not in sources or "output_tokens" not in sources:
        return np.zeros(len(table), dtype=np.bool_)
    prompts, outputs = (sources[ours].column for ours in ("prompt_tokens", "output_tokens"))
    empty = table.columns[prompts].mapped(empty_cells) | table.columns[outputs].mapped(empty_cells)
    found: Flags = empty & ~failed
    if 2 * found.sum() > (~failed).sum():
        faults.append(
            Fault(
                WHOLE,
                f"{found.sum():,} of {len(table):,} requests that {NO_USAGE}",
                f"fewer; {ASK_FOR_USAGE}",
            )
        )
    return found


def _counted(table: Table, name: str, rows: Flags) -> list[str]:
    """Return in how many of some rows a column has each of its commonest values, and any other."""
    cells = (
        str(cell).strip() for cell, failed in zip(table.columns[name], rows.tolist(), strict=True) if failed
    )
    counts = Counter(cells).most_common()
    found = [f"{name} {value} in {count:,}" for value, count in counts[:SHOWN]]
    rest = sum(count for _, count in counts[SHOWN:])
    return [*found, f"other {name} in {rest:,}"] if rest else found


def _went(cells: Objects) -> NDArray[np.int8]:
    """Return how each request ended."""
    found = np.full(len(cells), UNKNOWN, dtype=np.int8)
    for at, cell in enumerate(cells):
        text = "" if cell is None else str(cell).strip().lower()
        code = text.partition(" ")[0].removesuffix(".0")
        if not text or code in WENT_WELL or text in WENT_WELL:
            found[at] = WELL
        elif text in FAILED:
            found[at] = BAD
        elif code.isdecimal() and int(code) >= 200:
            found[at] = WELL if int(code) < 400 else BAD
    return found


def _is_error(cells: Objects) -> Flags:
    """Return which cells say that something went wrong; an object does where any of its values does."""
    return np.array([_says_something(cell) for cell in cells], dtype=np.bool_)


def _says_something(cell: Any) -> bool:
    if isinstance(cell, dict):
        return any(map(_says_something, cell.values()))
    return cell is not None and str(cell).strip().lower() not in NOTHING


# Columns of numbers --------------------------------------------------------------------------


def _arrivals(
    table: Table, sources: dict[str, Source], wishes: Wishes, faults: list[Fault], notices: list[str]
) -> Floats:
    """Return seconds since the first request [rows]."""
    source = sources.get("arrival")
    if wishes.rate_rps is not None:
        if np.isinf(wishes.rate_rps):
            notices.append(f"{AT_ONCE}, as {wishes.rate_from} says")
            return np.zeros(len(table))
        gaps_s = stream(0, "arrivals").exponential(1 / wishes.rate_rps, len(table))
        notices.append(
            f"arrivals are drawn, a Poisson process of {wishes.rate_rps:g} requests/s, as {wishes.rate_from} says"
        )
        since_s: Floats = np.cumsum(gaps_s) - gaps_s[:1].sum()
        return since_s
    if source is None or not len(table):
        return np.zeros(len(table))
    found = times(table, source)
    faults += found.faults
    return found.since_s


def _tokens(
    table: Table, sources: dict[str, Source], ours: str, faults: list[Fault], among: Flags | None = None
) -> Ints:
    """Return counts of tokens [rows], 0 where there is none."""
    if ours not in sources:
        return np.zeros(len(table), dtype=np.int64)
    name = sources[ours].column
    return counts(table, name, AT_LEAST_1, TOKENS_MAX, faults, among)


def _most(table: Table, sources: dict[str, Source], outputs: Ints, faults: list[Fault]) -> Ints:
    """Return the caps of the answers [rows]: their lengths where the log has none."""
    if "max_output_tokens" not in sources or not len(table):
        return outputs
    name = sources["max_output_tokens"].column
    given = ~table.columns[name].mapped(empty_cells)
    most = np.where(given, _tokens(table, sources, "max_output_tokens", faults, given), outputs)
    short = given & (most < outputs) & (most > 0)
    faults += of_rows(
        table, name, short, lambda at: f"at least the answer's {outputs[at]:,}; or --map max_output_tokens="
    )
    return most


# Prefixes ------------------------------------------------------------------------------------


def _sessions(table: Table, sources: dict[str, Source], faults: list[Fault]) -> NDArray[np.object_] | None:
    """Return each row's session [rows]."""
    if "session" not in sources or not len(table):
        return None
    name = sources["session"].column
    odd = table.columns[name].mapped(nameless)
    faults += of_rows(table, name, odd, "a name")
    if odd.any():
        return None
    codes, found = labels(table, name)
    return objects([*found, None])[codes]


def _hashes(
    table: Table, sources: dict[str, Source], prompts: Ints, faults: list[Fault]
) -> tuple[list[tuple[int, ...]] | None, int]:
    """Return each row's hashes of blocks, and how many tokens a block has."""
    if "block_hashes" not in sources or not len(table):
        return None, BLOCK_TOKENS[0]
    name = sources["block_hashes"].column
    try:
        hashes = block_hashes(table, name)
        check_prefixes(table, name, hashes)
    except InputError as error:
        faults.append(Fault(name, str(error), "hashes of prefixes, or --map block_hashes= to leave them out"))
        return None, BLOCK_TOKENS[0]
    counts = np.array([len(each) for each in hashes])
    some = (counts > 0) & (prompts > 0)
    for block_tokens in BLOCK_TOKENS:
        if (counts[some] == -(-prompts[some] // block_tokens)).all():
            return hashes, block_tokens
    for block_tokens in reversed(BLOCK_TOKENS):
        if (counts[some] <= -(-prompts[some] // block_tokens)).all():
            return hashes, block_tokens
    long = some & (counts > -(-prompts // BLOCK_TOKENS[0]))
    faults += of_rows(
        table, name, long, lambda at: f"one hash a block of 16 tokens or more, of {prompts[at]:,} tokens"
    )
    return None, BLOCK_TOKENS[0]
