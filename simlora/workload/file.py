"""Our own trace format: one row a request, as CSV, Parquet or JSONL."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from simlora.core.adapter import RANK_MAX
from simlora.core.arrays import Counts, Floats, Ints
from simlora.core.checks import number, shown, whole
from simlora.core.errors import InputError
from simlora.core.trace import AdapterSpec, Trace, narrow
from simlora.workload.blocks import block_hashes, check_prefixes
from simlora.workload.cells import objects
from simlora.workload.chunks import known
from simlora.workload.columns import empty, labels, refuse, seconds, tokens, whole_numbers
from simlora.workload.resampling import resampled
from simlora.workload.table import Table, check_names, read_table

REQUIRED = ("arrival_s", "adapter", "rank", "prompt_tokens", "output_tokens")
OPTIONAL = ("max_output_tokens", "session", "block_hashes")

LATE_S, LATE_GAPS, LEAST_S = 60.0, 10.0, 1.0
"""A trace begins with its first request if that arrives later than LATE_S, or than LATE_GAPS mean gaps and LEAST_S.

Then no figure is of the time before it.
"""


@dataclass(frozen=True)
class File:
    """The requests of a file with the columns REQUIRED and any of OPTIONAL.

    An empty adapter is the base model. An empty or absent max_output_tokens is the true output length.
    block_hashes are whole numbers, apart by spaces or as a list, one for each `hash_block_tokens` tokens of the
    prompt: equal numbers mean equal tokens, there and in all blocks before. Rows of one session without them begin
    with all that was said in it before. Rows need not be sorted. If the first arrival is late (LATE_S), times are
    counted from it on, with a notice. With `resample_block_s` the seed draws blocks of the trace of so many seconds
    (`resampling.py`); without, every seed has the same requests.
    """

    path: str | None = None
    hash_block_tokens: int = 16
    resample_block_s: float | None = None

    def __post_init__(self) -> None:
        whole("workload.hash_block_tokens", self.hash_block_tokens, "tokens", least=1)
        if self.resample_block_s is not None:
            number("workload.resample_block_s", self.resample_block_s, "seconds", above=0)
        if not self.path:
            raise InputError(f"workload.path is not set, must be a trace file: {known()}")

    def build(self, seed: int) -> Trace:
        """Return the trace; `seed` draws its blocks if it is resampled. Raises InputError for the first thing wrong."""
        trace = self._read()
        return trace if self.resample_block_s is None else resampled(trace, self.resample_block_s, seed)

    def _read(self) -> Trace:
        """Return the trace as the file has it."""
        table = read_table(str(self.path))
        check_names(table, REQUIRED, OPTIONAL)
        arrival_s = seconds(table, "arrival_s")
        order, notices = in_order(table, "arrival_s", arrival_s)
        start_s = float(arrival_s.min())
        if _is_late(start_s, float(arrival_s.max()), len(arrival_s)):
            arrival_s = arrival_s - start_s
            notices += (
                f"{table.path}: arrival_s begins at {start_s:.10g} s; it now begins at 0, and so do window, until_s "
                "and the times of incidents.",
            )
        events = events_path(Path(table.path))
        if events.exists():
            notices += (
                f"{table.path}: {events.name} beside it has what else happened while it was recorded (faults, clients "
                "that left, adapters that came), which this run leaves out; simlora-serve --replay repeats it.",
            )
        del table.columns["arrival_s"]  # half the file's memory, and nothing below shows it
        outputs = narrow(tokens(table, "output_tokens"))
        adapter, specs = _adapters(table)
        sessions = labels(table, "session") if "session" in table.columns else None
        hashes = block_hashes(table, "block_hashes") if "block_hashes" in table.columns else None
        prompts = narrow(tokens(table, "prompt_tokens"))
        if hashes is not None:
            notices += _check_blocks(table, hashes, prompts, self.hash_block_tokens)
        if sessions is not None:
            notices += _shorter_turns(table, sessions[0][order], adapter[order], prompts[order])
        return Trace(
            arrival_s=arrival_s[order],
            adapter=adapter[order],
            prompt_tokens=prompts[order],
            output_tokens=outputs[order],
            max_output_tokens=_max_output_tokens(table, outputs)[order],
            adapters=specs,
            session=_session(sessions[0][order], sessions[1]) if sessions is not None else None,
            block_hashes=objects(hashes)[order].tolist() if hashes is not None else None,
            hash_block_tokens=self.hash_block_tokens,
            source=table.path,
            notices=notices,
        )


def events_path(path: Path) -> Path:
    """Return where the events of a trace that simlora-serve recorded lie: what else was asked for while it ran."""
    return path.with_suffix(".events.jsonl")


def _is_late(first_s: float, last_s: float, requests: int) -> bool:
    """Whether the time before the first request is long beside the trace's own gaps."""
    gap_s = (last_s - first_s) / max(requests - 1, 1)
    return first_s > LATE_S or (requests > 1 and first_s > max(LATE_GAPS * gap_s, LEAST_S))


def in_order(table: Table, name: str, arrival_s: Floats) -> tuple[Ints | slice, tuple[str, ...]]:
    """Return the rows in stable order by arrival, and a notice if that is not the file's own order, else all rows."""
    back = np.flatnonzero(arrival_s[1:] < arrival_s[:-1])
    if not len(back):
        return slice(None), ()  # so that what is ordered by it is not copied
    order = np.argsort(arrival_s, kind="stable")
    times = "once" if len(back) == 1 else f"{len(back):,} times"
    first = table.where(int(back[0]) + 1)
    return order, (f"{first}: {name} goes back, {times} in the file; the rows were sorted by it.",)


def _adapters(table: Table) -> tuple[Counts, tuple[AdapterSpec, ...]]:
    """Return each row's adapter [rows] and the adapters."""
    base, no_rank = empty(table, "adapter"), empty(table, "rank")
    refuse(table, "rank", base & ~no_rank, "empty where the adapter is empty (the base model)")
    codes, found = labels(table, "adapter")
    must = f"a whole number, at least 1 and at most {RANK_MAX:,}"
    ranks = narrow(whole_numbers(table, "rank", must, 1, RANK_MAX, among=~base))
    used = np.flatnonzero(~base)[::-1]
    first = np.zeros(len(found) + 1, dtype=np.int64)  # the last one answers to code -1
    first[codes[used]] = used  # the last that is written is the first row
    other = np.flatnonzero(~base & (ranks != ranks[first][codes]))
    if len(other):
        row, name = int(other[0]), found[codes[other[0]]]
        was = int(first[codes[row]])
        raise InputError(
            f"{table.where(row)}: adapter {shown(name)} has rank {ranks[row]}, but rank {ranks[was]} in row "
            f"{table.rows[was]}; an adapter must have one rank"
        )
    return codes, tuple(AdapterSpec(name, int(ranks[first[code]])) for code, name in enumerate(found))


def _max_output_tokens(table: Table, outputs: Counts) -> Counts:
    given = ~empty(table, "max_output_tokens")
    if not given.any():
        return outputs
    declared = narrow(np.where(given, tokens(table, "max_output_tokens", among=given), outputs))
    short = declared < outputs
    must = f"at least output_tokens, which is {outputs[np.argmax(short)]}"
    refuse(table, "max_output_tokens", short, must)
    return declared


def _check_blocks(
    table: Table, hashes: list[tuple[int, ...]], prompts: Counts, block_tokens: int
) -> tuple[str, ...]:
    """Check that hashes can be those of prefixes; say so where they reach over no whole prompt."""
    most = -(-prompts // block_tokens)
    counts = np.array([len(each) for each in hashes])
    wrong = counts > most
    index = int(np.argmax(wrong))
    refuse(
        table,
        "block_hashes",
        wrong,
        f"at most {most[index]}, one for each {block_tokens} tokens of the prompt (workload.hash_block_tokens)",
    )
    check_prefixes(table, "block_hashes", hashes)
    some = counts > 0
    if some.any() and not (counts[some] >= (prompts // block_tokens)[some]).any():
        return (
            f"{table.path}: no row has a hash for every whole block of {block_tokens} tokens of its prompt; is "
            "workload.hash_block_tokens right?",
        )
    return ()


def _session(codes: Counts, names: list[str]) -> list[str | None]:
    """Return the names that codes stand for, -1 for None; equal ones are one object."""
    cells: list[str | None] = objects([*names, None])[codes].tolist()
    return cells


def _shorter_turns(table: Table, sessions: Counts, adapter: Counts, prompts: Counts) -> tuple[str, ...]:
    """Say how many turns of a session have a shorter prompt than the turn before, which they should begin with."""
    turns = np.lexsort((adapter, sessions))
    turns = turns[sessions[turns] >= 0]
    again = (np.diff(sessions[turns]) == 0) & (np.diff(adapter[turns]) == 0)
    shorter = np.count_nonzero(again & (np.diff(prompts[turns]) < 0))
    if not shorter:
        return ()
    return (
        f"{table.path}: {shorter:,} rows have a shorter prompt than the row of their session before; with prefix "
        "caching they count as its beginning.",
    )
