"""`simlora-validate MEASURED.json [option …] [group=choice] [key=value] …`: a server's run against a simulated one."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from simlora.cli.guarded import (
    DONE,
    RUNS_ARE_KEPT,
    add_config_dir,
    command_parser,
    guarded_options,
    overrides_of,
)
from simlora.cli.messages import say, show
from simlora.cli.trace_import import add_import_options, wishes_of

DESCRIPTION = """\
Compare what your own server did with a simulation of the same requests: TTFT, TPOT, ITL, throughput and KV cache, and
which part of the calibration is to blame for the difference. What comes after the file describes the server, as for
simlora; or --serve takes the command that started it."""
EXAMPLES = """\
examples
  vllm bench serve --model meta-llama/Llama-3.1-8B-Instruct --dataset-name sharegpt --request-rate 8 --save-result
      --save-detailed --result-filename result.json                             what is read: a row a request
  simlora-validate result.json system=vllm gpu=h100_80g model=llama_3_1_8b replica.prefix_caching=true
  simlora-validate result.json gpu=h100_80g --serve 'vllm serve meta-llama/Llama-3.1-8B-Instruct --max-num-seqs 128'
  simlora-validate result.json system=vllm gpu=h100_80g model=llama_3_1_8b --adapters 60 --rank 16 --startup-log v.log
  simlora-validate result.json system=vllm gpu=h100_80g model=llama_3_1_8b --fit

Read are results of vllm bench serve (--save-detailed) and sglang.bench_serving (--output-details), reports of GuideLLM,
records of AIPerf and inference-perf, gateways' logs, and tables with columns such as ttft_ms and latency_ms. Columns
have their names guessed as simlora-trace import does; --map names others: ttft and latency (durations, with a unit),
first_token and end (times), gaps (lists of seconds between tokens).
To blame is the part of the calibration that, longer or shorter, leaves least of the error; each is tried in turn. --fit
fits the host's time alone to the decode steps that the times of tokens show, and writes a calibration.
Written to --out: validation.json, validation.png, requests.parquet (the requests, as a trace) and run/, the simulated
run with its report. Runs are kept in SIMLORA_CACHE_DIR (default: outputs/cache here).
Exit status: 0 done, 2 bad input, 130 interrupted."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status."""
    return guarded_options(_parser(), argv, _run, RUNS_ARE_KEPT)


def _parser() -> argparse.ArgumentParser:
    parser = command_parser("simlora-validate", DESCRIPTION, EXAMPLES)
    add = parser.add_argument
    add("measured", metavar="MEASURED", help="a benchmark's result or a log with the times of tokens")
    add("overrides", nargs="*", metavar="key=value", help="the server, as for simlora")
    add_config_dir(parser)
    add("--serve", metavar="COMMAND", help="the command that started the server: vllm serve … or sglang's")
    add("--kv-tokens", type=int, metavar="N", help="tokens of its KV cache: vLLM's line GPU KV cache size")
    add("--startup-log", metavar="FILE", help="what the engine wrote when it started, with that line")
    add("--fit", action="store_true", help="fit the host's time to the decode steps, and write a calibration")
    add("--no-blame", action="store_true", help="do not look for the part that is to blame")
    add("--jobs", type=int, default=-1, metavar="N", help="processes (default: one a core)")
    add("--out", type=Path, metavar="DIR", help="where the results go (default: outputs/validate)")
    group = add_import_options(parser, "how the log is read, where a guess is wrong or it does not say")
    group.add_argument(
        "--adapters",
        type=int,
        metavar="N",
        help="each request had one of N adapters, as likely as another, as vllm bench serve --lora-modules draws them",
    )
    return parser


def _run(options: argparse.Namespace) -> int:
    from simlora.core.checks import whole
    from simlora.core.errors import InputError
    from simlora.validation import validate
    from simlora.validation.measured import Unsaid
    from simlora.validation.replay import kv_tokens_in
    from simlora.validation.validated import FILES
    from simlora.workload.logs.faults import Faulty, as_table

    if options.kv_tokens is not None and options.startup_log is not None:
        raise InputError("--kv-tokens and --startup-log both say how large the KV cache is; give one of them")
    if options.adapters is not None:
        whole("--adapters", options.adapters, "adapters", least=1)
    overrides = overrides_of(options)
    folder = options.out or Path("outputs") / "validate"
    kv_tokens = options.kv_tokens if options.startup_log is None else kv_tokens_in(options.startup_log)
    try:
        found = validate(
            options.measured,
            overrides,
            serve=options.serve,
            unsaid=Unsaid(options.map, wishes_of(options), options.adapters),
            kv_tokens=kv_tokens,
            fit=options.fit,
            blame=not options.no_blame,
            out=folder,
            jobs=options.jobs,
            tell=say,
        )
    except Faulty as error:
        show(f"\n{as_table(error.faults)}\n")
        raise
    for notice in found.notices:
        say(f"notice: {notice if notice.endswith('.') else notice + '.'}")
    found.save(folder)
    show(found.text())
    show(f"\nResults: {folder}/{', '.join(FILES)}\n")
    return DONE


if __name__ == "__main__":
    sys.exit(main())
