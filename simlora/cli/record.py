"""`simlora-record TRACE --upstream URL`: a proxy in front of a real server that writes its traffic as a trace."""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from simlora.cli.guarded import DONE, command_parser, guarded_options
from simlora.cli.messages import say, show
from simlora.cli.serve import INSTALL
from simlora.cli.trace_import import add_import_options, import_log
from simlora.core.checks import whole
from simlora.core.errors import InputError

if TYPE_CHECKING:
    from simlora.serving.completion_log import CompletionLog

DESCRIPTION = """\
Stand between clients and a server with OpenAI's API (vLLM, SGLang, a gateway, simlora-serve), and write what they ask
it as a trace. Every request is handed on as it is, but that a stream is also asked for its usage. A log beside the
trace gets a line for each completion: the time, the model, the tokens by the server's own count, and how long the first
token and the whole answer took. At the end the log is imported, as by simlora-trace import."""
EXAMPLES = """\
examples
  simlora-record trace.csv --upstream http://localhost:8000 --rank 16 --base-model meta-llama/Llama-3.1-8B-Instruct
  simlora-record trace.parquet --upstream http://localhost:8000 --ranks ranks.csv --port 9000

  simlora gpu=h100_80g model=llama_3_1_8b system=vllm workload=file workload.path=trace.csv     the same requests again
  simlora-validate trace.log.jsonl --serve 'vllm serve …' gpu=h100_80g          how far a simulation of them is off
  simlora-trace import trace.log.jsonl trace.csv --rank 32                      the log again, with other ranks

Point the clients at the port; it listens on the loopback address unless --host says otherwise. Ctrl-C ends it. An
earlier log of the same name is gone on with. Prompts and answers themselves are not kept.
Exit status: 0 done, 2 bad input (also at the end, when the log is kept), 130 interrupted before it listened."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status."""
    return guarded_options(_parser(), argv, _run, "interrupted; nothing was recorded")


def _parser() -> argparse.ArgumentParser:
    parser = command_parser("simlora-record", DESCRIPTION, EXAMPLES)
    add = parser.add_argument
    add("trace", metavar="TRACE", help="the trace to write, .csv or .parquet; its log is TRACE's .log.jsonl")
    add("--upstream", required=True, metavar="URL", help="the server, such as http://localhost:8000")
    add("--host", default="127.0.0.1", help="address to listen on (default: 127.0.0.1, this machine only)")
    add("--port", type=int, default=9000, help="port to listen on; 0: any (default: 9000)")
    add_import_options(parser, "options of the trace, as of simlora-trace import")
    return parser


def _run(options: argparse.Namespace) -> int:
    from simlora.workload.export import check_suffix

    whole("--port", options.port, least=0, most=65535)
    check_suffix(options.trace)
    try:
        from simlora.serving.completion_log import CompletionLog
        from simlora.serving.proxy import is_address, proxy
        from simlora.serving.server import listening, serve
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("simlora"):
            raise
        raise InputError(INSTALL.format("simlora-record", error.name)) from None
    if not is_address(options.upstream):
        must = "must be http:// or https:// and a host, without a path, such as http://localhost:8000"
        raise InputError(f"--upstream {options.upstream} {must}")
    listens = listening(options.host, options.port)
    try:
        log = CompletionLog(Path(options.trace).with_suffix(".log.jsonl"), *options.base_model[:1])
    except InputError:
        listens.close()
        raise
    host, port = listens.getsockname()[:2]

    def started() -> None:
        show(f"http://{f'[{host}]' if ':' in host else host}:{port} hands requests on to {options.upstream}")
        show(f"completions are kept in {log.path}; Ctrl-C writes {options.trace}")
        if options.host not in ("127.0.0.1", "::1", "localhost"):
            say(f"notice: {options.host} may be reached by other machines, and there is no authentication")

    try:
        serve([proxy(options.upstream, log)], [listens], started)
    finally:
        log.close()
    show(f"{log.written:,} completions: {log.path}\n")
    if not log.path.stat().st_size:
        return DONE
    _check_answered(log)
    options.picture = None
    models = {str(entry["model"]) for entry in log.entries()}
    options.base_model = [name for name in options.base_model if name in models]  # others were not asked for
    return import_log(str(log.path), [options.trace], options)


def _check_answered(log: CompletionLog) -> None:
    """Raise InputError for a log in which every completion failed, and none has tokens that could be kept."""
    statuses = Counter[int]()
    for entry in log.entries():
        if entry["status"] < 400 or entry["prompt_tokens"] is not None:
            return
        statuses[entry["status"]] += 1
    counted = ", ".join(f"status {status} in {count:,}" for status, count in statuses.most_common())
    raise InputError(
        f"{statuses.total():,} completions, none of which was answered with tokens ({counted}): no trace is written"
    )


if __name__ == "__main__":
    sys.exit(main())
