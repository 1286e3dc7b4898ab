"""`simlora-trace list|show|info|convert|import`: public traces, what one is like, and any log in our own schema."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from simlora.cli.guarded import DONE, add_config_dir, command_parser, guarded_options, overrides_of
from simlora.cli.messages import say, show
from simlora.cli.trace_import import add_import_options, import_log
from simlora.core.errors import InputError, nearest
from simlora.core.files import expanded, whole_file

if TYPE_CHECKING:
    from simlora.core.trace import Trace

DESCRIPTION = """\
Look at traces of requests: those that are public, and your own.

  list                     the public traces that simlora reads
  show NAME                one of them: origin, licence, columns, checksums, how to get it, which adapters suit it
  info FILE [key=value]    what a trace is like: rates, bursts, lengths, reuse, popularity; and a picture
  convert FILE OUT [...]   write it in our own schema, as .csv, .parquet or .jsonl
  import LOG [OUT]         make such a file of your own log, whatever wrote it; without OUT only check it"""
EXAMPLES = """\
examples
  simlora-trace show mooncake
  simlora-trace info mooncake_conversation.jsonl
  simlora-trace info AzureLLMInferenceTrace_conv.csv workload/popularity=zipf workload.adapters=50 --picture azure.png
  simlora-trace info AzureFunctionsInvocationTraceForTwoWeeksJan2021.txt workload.adapters=32 workload.stride=4
  simlora-trace convert BurstGPT_3.csv burst.parquet workload.start_s=3600 workload.duration_s=3600 seed=1
  simlora workload=file workload.path=burst.parquet
  simlora-trace import access.jsonl.gz trace.parquet --base-model meta-llama/Llama-3.1-8B --ranks ranks.csv
  simlora-trace import gateway.csv trace.csv --map arrival=ts:ms,adapter=tenant --rank 16 --failed refuse
  simlora-trace import sglang.jsonl trace.csv --rate 4

A file's format is told by its columns; --format names it otherwise: an entry of the list, or file for our own schema:
arrival_s, adapter, rank, prompt_tokens, output_tokens[, max_output_tokens, session, block_hashes]. What a trace does
not say (which adapter, in some how long or when) is drawn: the keys of its workload say how, as in a run, and seed=N
with which seed; simlora-trace show NAME names that workload. A week of requests is not read whole unless
workload.rows=null.

import takes what vllm bench serve --save-detailed, sglang.bench_serving --output-details, GuideLLM, AIPerf
(profile_export.jsonl), inference-perf (per request), LiteLLM, OpenRouter and gateways write (Envoy's, Kong's, those
that speak OpenAI's API), Azure's traces and Mooncake's: JSON lines, JSON, CSV or Parquet, text also as .gz or .zst. It
finds the columns by their names, prints which it takes, and checks every row. A row of the base model has no adapter.
Requests that failed (status 429 or 5xx, an error, no tokens) are left out, with their number. If anything is wrong, all
of it stands in one table, each with its row, its column, what there is and what it must be, and nothing is written.

Exit status: 0 done, 2 bad input, 130 interrupted."""
WORDS = {"list": (), "show": ("NAME",), "info": ("FILE",), "convert": ("FILE", "OUT"), "import": ("LOG",)}
LIMITS = (
    "rows",
    "start_s",
    "duration_s",
    "rate_rps",
    "context_tokens",
    "prompt_tokens_max",
    "output_tokens_max",
)
"""Keys of a workload that leave something of a file out."""
OWN = "these adapters"


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status."""
    return guarded_options(_parser(), argv, _run, "interrupted; nothing was written")


def _parser() -> argparse.ArgumentParser:
    parser = command_parser(
        "simlora-trace",
        DESCRIPTION,
        EXAMPLES,
        "simlora-trace [option ...] list | show NAME | info FILE [key=value ...] | convert FILE OUT [...] | "
        "import LOG [OUT]",
    )
    add = parser.add_argument
    add("command", metavar="command", help="list, show, info, convert or import")
    add("words", nargs="*", metavar="word", help="what it is about, as above")
    add_config_dir(parser)
    add("--format", metavar="NAME", help="the file's format (default: told by its columns)")
    add("--picture", type=Path, metavar="PATH", help="where info's picture goes (default: <file>.png, here)")
    add_import_options(parser)
    return parser


def _run(options: argparse.Namespace) -> int:
    if options.command not in WORDS:
        raise InputError(f"there is no command {options.command!r}; {nearest(options.command, WORDS)}")
    wanted = WORDS[options.command]
    words, rest = options.words[: len(wanted)], options.words[len(wanted) :]
    if len(words) < len(wanted):
        raise InputError(
            f"simlora-trace {options.command} needs {' and '.join(wanted)}; see simlora-trace --help"
        )
    if rest and options.command in ("list", "show"):
        raise InputError(f"simlora-trace {options.command} takes no {rest[0]!r}; see simlora-trace --help")
    if options.command == "import":
        return import_log(words[0], rest, options)
    options.overrides = rest
    rest = overrides_of(options)
    if options.command == "list":
        return _list()
    if options.command == "show":
        return _show(*words)
    if options.command == "info":
        return _info(words[0], options.format, rest, options.picture)
    return _convert(words[0], words[1], options.format, rest)


def _list() -> int:
    from simlora.workload import catalogue

    entries = [catalogue.entry(name) for name in catalogue.names()]
    width = max(len(entry.name) for entry in entries)
    show("\n".join(f"{entry.name:<{width}}  {entry.title}; {entry.licence}" for entry in entries))
    return DONE


def _show(name: str) -> int:
    from simlora.workload import catalogue

    entry = catalogue.entry(name)
    parts = [
        ("origin", entry.origin),
        ("home", entry.home),
        ("licence", entry.licence),
        ("cite", entry.citation),
        ("get it", entry.get),
        ("read it", f"workload={entry.workload}"),
        ("adapters", entry.adapters),
        ("schema", f"{entry.schema_source}."),
        ("uncertain", entry.uncertain),
    ]
    lines = [entry.title, "", *(_paragraph(head, text) for head, text in parts), "", "columns"]
    wide = max(len(column.name) for column in entry.columns)
    for column in entry.columns:
        lines.append(
            f"  {column.name:<{wide}}  {column.holds} ({column.unit}{', optional' * column.optional})"
        )
    lines += ["", "files"]
    for file in entry.files:
        rows = "rows not known" if file.rows is None else f"{file.rows:,} rows"
        size = "size not known" if file.size_bytes is None else f"{file.size_bytes:,} bytes"
        lines += [
            f"  {file.name}: {rows}, {size}",
            f"    sha256 {file.sha256 or 'not known'}",
            f"    {file.known}",
        ]
    show("\n".join(lines))
    return DONE


def _paragraph(head: str, text: str) -> str:
    import textwrap

    return textwrap.fill(
        text, 116, initial_indent=f"{head:<11}", subsequent_indent=" " * 11, break_long_words=False
    )


def _info(path: str, named: str | None, overrides: Sequence[str], picture: Path | None) -> int:
    from simlora.api.progress import working
    from simlora.cli.trace_text import ONE, facts_in_words
    from simlora.report.traces import draw_trace
    from simlora.workload.facts import facts

    out = picture or Path(f"{Path(path).name}.png")
    if out.suffix.lower() not in (".png", ".svg", ".pdf"):
        raise InputError(f"--picture is {str(out)!r}, must end in .png, .svg or .pdf")
    with working(f"reading {path}"):
        name, trace, cut = _read(path, named, overrides)
        found = facts(trace)
    again = {}
    if found.reuse and found.reuse_of_one:
        again = {OWN: found.reuse.of_blocks, ONE: found.reuse_of_one.of_blocks}
        again = again if found.shares.used > 1 else {ONE: found.reuse.of_blocks}
    title = f"{Path(path).name}: {found.requests:,} requests"
    _save(draw_trace(trace, title, found.rates.dispersion, again), out)
    show(f"{path}\n{_about(name, path)}{cut}\n\n{facts_in_words(found)}\n\nPicture: {out}")
    return DONE


def _about(name: str, path: str) -> str:
    """Return what file it is: the entry, and whether it is a published one byte for byte."""
    from simlora.workload import catalogue

    if name == catalogue.OWN:
        return "our own schema"
    entry = catalogue.entry(name)
    known = catalogue.known_file(entry, expanded(path))
    same = f"{known.name} as published (sha256)" if known else "not one of the files whose checksum is known"
    drawn = "" if name.startswith("azure_functions") else "; adapters are drawn, the trace has none"
    return f"{entry.title} ({name}): {same}{drawn}"


def _convert(path: str, out: str, named: str | None, overrides: Sequence[str]) -> int:
    from simlora.api.progress import working
    from simlora.cli.trace_text import next_commands
    from simlora.workload.export import check_suffix, write

    check_suffix(out)
    if Path(out).exists() and expanded(path).exists() and os.path.samefile(expanded(path), out):
        raise InputError(f"{out} is the file to be read, must be another")
    with working(f"reading {path}"):
        _, trace, _ = _read(path, named, overrides)
        write(trace, out)
    show(f"{out}: {len(trace):,} requests, {len(trace.adapters):,} adapters\n{next_commands(out, trace)}")
    return DONE


def _read(path: str, named: str | None, overrides: Sequence[str]) -> tuple[str, Trace, str]:
    """Return the format's name, the trace, and a line about what of it is left out, if its workload does so.

    Its notices are said. Raises InputError.
    """
    from omegaconf import OmegaConf

    from simlora.api.preparing import composed
    from simlora.config.making import make
    from simlora.config.own_folder import KEY as OWN_FOLDER
    from simlora.core.checks import whole
    from simlora.workload import catalogue

    for override in overrides:
        key = override.lstrip("+~").partition("=")[0]
        if key not in ("seed", OWN_FOLDER) and not key.startswith(("workload.", "workload/")):
            raise InputError(
                f"{override!r} changes no trace, must be a key of its workload, such as workload.adapters=50, "
                "or seed=1"
            )
    name = named or catalogue.format_of(path)
    config, _ = composed([f"workload={catalogue.workload_of(name)}", *overrides])
    OmegaConf.update(config, "workload.path", path)
    tree = {"workload": OmegaConf.to_container(config.workload, resolve=True)}
    trace: Trace = make(tree, "workload", object).build(whole("seed", config.seed, least=0))  # type: ignore[attr-defined]
    for notice in trace.notices:
        say(f"notice: {notice}")
    limits = [f"{key}={config.workload[key]:.10g}" for key in LIMITS if config.workload.get(key)]
    cut = f"\nof which workload.{', workload.'.join(limits)} is read (null: all)" if limits else ""
    return name, trace, cut


def _save(picture: object, out: Path) -> None:
    """Write a picture under its name once it is whole. Raises InputError where that cannot be."""
    try:
        with whole_file(out) as draft:
            picture.savefig(draft, dpi=150)  # type: ignore[attr-defined]
    except OSError as error:
        raise InputError(f"{out} cannot be written: {error.strerror or error}") from None


if __name__ == "__main__":
    sys.exit(main())
