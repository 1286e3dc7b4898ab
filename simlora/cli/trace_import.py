"""`simlora-trace import`: a log goes in, a trace in our own schema comes out."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from simlora.cli.guarded import DONE
from simlora.cli.messages import say, show
from simlora.core.checks import choice, number, whole
from simlora.core.errors import InputError
from simlora.core.files import expanded

if TYPE_CHECKING:
    from simlora.workload.logs.guessing import Source
    from simlora.workload.logs.reading import Log
    from simlora.workload.logs.wishes import Wishes


def add_import_options(parser: argparse.ArgumentParser, title: str = "options of import") -> Any:
    """Add the options that say what a log does not; return their group."""
    group = parser.add_argument_group(title)
    add = group.add_argument
    add(
        "--map",
        metavar="OURS=THEIRS,...",
        action="append",
        default=[],
        help="columns, where the guess is wrong: arrival (with a unit: arrival=COLUMN:ms, or :s, :us, :ns), "
        "adapter, rank, prompt_tokens, output_tokens, max_output_tokens, session, block_hashes, status, error, phase, "
        "cache_hit; "
        "nothing behind =: none",
    )
    add("--ranks", metavar="CSV", help="each adapter's rank: a file with the columns adapter and rank")
    add("--rank", metavar="N", help="the rank of every adapter")
    add(
        "--base-model",
        metavar="NAME",
        action="append",
        default=[],
        help="a model that is no adapter but the base model; may be given again",
    )
    add(
        "--failed",
        metavar="WHAT",
        default="drop",
        help="requests that failed: drop (default), keep or refuse",
    )
    add("--rate", metavar="RPS", help="draw arrivals, so many a second, for a log that has none (or inf)")
    return group


def import_log(path: str, rest: Sequence[str], options: argparse.Namespace) -> int:
    """Import a log, print what is guessed, wrong and there, and return the exit status."""
    from simlora.api.progress import working
    from simlora.cli.trace_text import facts_in_words, next_commands
    from simlora.config.engine_flags import model_named
    from simlora.workload.export import check_suffix, write
    from simlora.workload.facts import facts
    from simlora.workload.logs.faults import Faulty, as_table
    from simlora.workload.logs.guessing import given_map, guess, missing
    from simlora.workload.logs.importing import imported
    from simlora.workload.logs.reading import read_log

    if options.picture is not None:
        raise InputError(
            "simlora-trace import draws no picture; simlora-trace info does, of what import has written"
        )
    if len(rest) > 1:
        raise InputError(f"simlora-trace import takes no {rest[1]!r}; see simlora-trace --help")
    out = rest[0] if rest else None
    if out is not None:
        check_suffix(out)
        if Path(out).exists() and expanded(path).exists() and os.path.samefile(expanded(path), out):
            raise InputError(f"{out} is the log to be read, must be another")
    wishes = wishes_of(options)
    given, faults = given_map(options.map)
    with working(f"reading {path}"):
        log = read_log(path, [source.column for source in given.values() if source])
    sources, wrong = guess(log.names, log.has_cells, given)
    faults += wrong
    if wishes.rate_rps is not None:
        sources.pop("arrival", None)
    if len(log.table):
        show(_guessed(log, sources, wishes))
        faults += missing(log.names, sources, given, (wishes.rate_rps, log.rate_rps))
    try:
        with working(f"checking {path}"):
            done = imported(log, sources, wishes, faults)
    except Faulty as error:
        show(f"\n{as_table(error.faults)}\n")
        raise
    for notice in done.notices:
        say(f"notice: {path}: {notice}.")
    trace = done.trace
    if out is not None:
        write(trace, out)
    show(f"\n{out or path}\nour own schema\n\n{facts_in_words(facts(trace))}\n")
    if out is None:
        show(f"Nothing was written; name a file to write it: simlora-trace import {path} trace.parquet")
    else:
        known = [model for name in wishes.base_models if (model := model_named(name))]
        show(next_commands(out, trace, *known[:1]))
    return DONE


def wishes_of(options: argparse.Namespace) -> Wishes:
    """Return what the options say. Raises InputError for one out of its range."""
    from simlora.core.adapter import RANK_MAX
    from simlora.workload.logs.wishes import WITH_FAILED, Wishes

    rank, rate_rps = _as_number(options.rank), _as_number(options.rate)
    if rank is not None:
        rank = whole("--rank", rank, least=1, most=RANK_MAX)
    if rate_rps not in (None, float("inf")):
        number("--rate", rate_rps, "requests per second", above=0)
    if options.ranks is not None and rank is not None:
        raise InputError("--ranks and --rank both say which rank an adapter has; give one of them")
    failed = choice("--failed", options.failed, WITH_FAILED)
    return Wishes(options.ranks, rank, tuple(options.base_model), failed, rate_rps)


def _as_number(text: str | None) -> Any:
    """Return a text as a number, whole if it is; text that is none, and None, as it is."""
    try:
        value = float(text or "")
    except ValueError:
        return text
    return int(value) if value.is_integer() else value


def _guessed(log: Log, sources: dict[str, Source], wishes: Wishes) -> str:
    """Return which column of the log is taken for which of ours, as a table."""
    from simlora.workload.logs.faults import columns
    from simlora.workload.logs.guessing import OURS, tool_of
    from simlora.workload.logs.times import unit_of

    said = {"arrival": wishes.rate_rps and f"--rate {wishes.rate_rps:g}"}
    said["rank"] = f"--rank {wishes.rank}" if wishes.rank else wishes.ranks and f"--ranks {wishes.ranks}"
    lines = [("ours", "theirs", "unit", "such as")]
    units = {
        "rank": "",
        "adapter": "name",
        "session": "name",
        "block_hashes": "hashes",
        "status": "",
        "error": "",
        "phase": "",
        "cache_hit": "",
    }
    for ours in OURS:
        if said.get(ours):
            lines.append((ours, str(said[ours]), "", ""))
        elif ours in sources:
            source = sources[ours]
            cells = log.table.columns[source.column]
            unit = unit_of(log.table, source) if ours == "arrival" else units.get(ours, "tokens")
            lines.append(
                (
                    ours,
                    source.column,
                    unit,
                    _example(cells),
                )
            )
    return f"{log.table.path}: {len(log.table):,} rows, {tool_of(log.names)}\n\n{columns(lines)}"


def _example(cells: Iterable[object]) -> str:
    """Return the first cell that is not empty, as it stands there, cut where it is long."""
    text = str(next((cell for cell in cells if cell is not None), ""))
    return text if len(text) <= 40 else f"{text[:37]}..."
