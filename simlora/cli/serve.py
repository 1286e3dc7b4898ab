"""`simlora-serve [option …] [group=choice] [key=value] …`: the configured cluster, live, behind vLLM's HTTP API."""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from simlora.cli.guarded import BAD_INPUT, DONE, add_config_dir, command_parser, guarded_options, overrides_of
from simlora.cli.messages import say, show
from simlora.core.checks import whole
from simlora.core.errors import InputError

if TYPE_CHECKING:
    from simlora.config.setup import Setup
    from simlora.results.result import Result
    from simlora.serving.live import Wishes

DESCRIPTION = """\
Serve a configuration on a wall clock behind vLLM's HTTP API, with the times that the simulated engine has: queues,
adapter slots, loads, evictions, KV. Point a router, a gateway or an autoscaler at it. What comes after the options is
written as for simlora; simlora --help lists it. The workload's adapters are there from the start, and answers that
clients leave open are as long as the workload's."""
EXAMPLES = """\
examples
  simlora-serve gpu=h100_64g model=llama_3_1_8b system=vllm workload=per_adapter replica.max_loras=8     one replica
  simlora-serve gpu=a10g model=llama_7b cluster.replicas=4 router=adapter_affinity   four, behind simlora's own router
  simlora-serve --per-replica gpu=a10g model=llama_7b cluster.replicas=4     ports 8000 to 8003, for your own router
  simlora-serve --speed 10 --record seen.csv --results out gpu=a10g model=llama_7b            ten times as fast, kept
  simlora gpu=a10g model=llama_7b workload=file workload.path=seen.csv            the same requests, offline
  simlora-serve --replay seen.csv --results again gpu=a10g model=llama_7b     with faults, loads and clients that left

  curl localhost:8000/v1/models
  curl localhost:8000/v1/completions -d '{"model": "adapter_0", "prompt": "Hello", "max_tokens": 20, "stream": true}'
  curl localhost:8000/v1/load_lora_adapter -d '{"lora_name": "acme-r16", "lora_path": "/loras/acme"}'
  curl localhost:8000/simlora/faults -d '{"kind": "fail", "replica": 0, "for_s": 30}'     (other kinds: slow and
                                              slow_link, with "factor": 3; refuse_loads; recover ends them)
  curl localhost:8000/metrics         vLLM's metrics; /simlora/state: the state as JSON; /simlora/: a page to look at

It listens on the loopback address unless --host says otherwise; there is no authentication. Ctrl-C stops it: answers
under way have five seconds, and then --record and --results are complete. docs/serving.md says what is modelled.
Exit status: 0 done, 2 bad input, 130 interrupted before it served."""
ONLY_SERVING = (
    *("host", "port", "speed", "tokenizer", "output_tokens", "in_order", "max_model_len"),
    *("served_model_name", "record", "max_body_bytes"),
)
"""Options that say how requests come and are answered, or recorded."""
INSTALL = "{} needs a web server: pip install 'simlora[serve]' ({} is not installed)"


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status."""
    return guarded_options(_parser(), argv, _run, "interrupted; nothing was served")


def _parser() -> argparse.ArgumentParser:
    parser = command_parser("simlora-serve", DESCRIPTION, EXAMPLES)
    add = parser.add_argument
    add("overrides", nargs="*", metavar="key=value", help="the configuration, as for simlora")
    add_config_dir(parser)
    add("--host", default="127.0.0.1", help="address to listen on (default: 127.0.0.1, this machine only)")
    add(
        "--port",
        type=int,
        default=8000,
        help="port, of the first replica with --per-replica; 0: any (default: 8000)",
    )
    add("--per-replica", action="store_true", help="a port for each replica, without simlora's router")
    add("--speed", type=float, default=1.0, metavar="FACTOR", help="simulated seconds a second (default: 1)")
    add(
        "--tokenizer",
        type=Path,
        metavar="FILE",
        help="a tokenizer.json (default: four characters are a token)",
    )
    add(
        "--output-tokens",
        type=int,
        metavar="N",
        help="length of answers up to max_tokens (default: drawn from the workload's answers)",
    )
    add(
        "--in-order",
        action="store_true",
        help="answers as long as the workload's in their order, as of a trace; all replicas take from one list",
    )
    add(
        "--max-model-len",
        type=int,
        metavar="N",
        help="tokens of prompt and answer (default: the model's window, as far as the KV pool has room)",
    )
    add("--served-model-name", metavar="NAME", help="the base model's name (default: that of model)")
    add(
        "--record",
        type=Path,
        metavar="FILE.csv",
        help="write the requests as a trace; with --per-replica FILE-0.csv, …",
    )
    add(
        "--results",
        type=Path,
        metavar="DIR",
        help="write results at the end as simlora does; with --per-replica DIR/0, …",
    )
    add(
        "--replay",
        type=Path,
        metavar="FILE.csv",
        help="serve nothing; simulate a record of --record and its events again, and write --results",
    )
    add("--max-body-bytes", type=int, default=8 << 20, metavar="N", help="of a request (default: 8 MiB)")
    return parser


def _run(options: argparse.Namespace) -> int:
    whole("--port", options.port, least=0, most=65535)
    try:
        from simlora.serving.app import app
        from simlora.serving.live import Live, notices, of_setup
        from simlora.serving.server import listening, serve
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("simlora"):
            raise
        raise InputError(INSTALL.format("simlora-serve", error.name)) from None
    from simlora.api.preparing import composed, ready

    overrides = overrides_of(options)
    config, choices = composed(overrides)
    setup = ready(config, choices, overrides)
    if options.replay is not None:
        return _replay(setup, options)
    live = Live(setup, _wishes(options))
    ports = [options.port + at if options.port else 0 for at in range(len(live.fronts))]
    with ExitStack() as opened:
        sockets = [opened.enter_context(listening(options.host, port)) for port in ports]
        folders = _folders(options.results, len(ports), options.per_replica)
        if options.record is not None:  # only now, as it takes the place of an earlier record
            live.record(options.record)
        shown = f"[{options.host}]" if ":" in options.host else options.host
        addresses = [f"{shown}:{each.getsockname()[1]}" for each in sockets]
        logging.basicConfig(format="simlora: %(message)s", stream=sys.stderr)

        def started() -> None:
            for notice in of_setup(setup):
                say(f"notice: {notice}")
            for line in notices(live, addresses):
                show(line)
            if options.host not in ("127.0.0.1", "::1", "localhost"):
                say(
                    f"notice: {options.host} may be reached by other machines, and there is no authentication"
                )

        serve([app(front, live.fronts) for front in live.fronts], sockets, started)
    live.close()
    for record in live.records:
        show(f"{record.written:,} requests: {record.path}{record.beside()}")
    saved = [
        _save(partial(live.result, front), folder, setup.report)
        for front, folder in zip(live.fronts, folders, strict=False)
    ]
    return DONE if all(saved) else BAD_INPUT


def _replay(setup: Setup, options: argparse.Namespace) -> int:
    """Play a record of each port once more."""
    from simlora.serving.live import of_port, result_of_run, scenarios
    from simlora.serving.replay import replay

    if options.results is None:
        raise InputError(
            "--replay simulates a record of --record, and writes what comes out; give --results DIR"
        )
    default_of = _parser().get_default
    for name in ONLY_SERVING:
        if getattr(options, name) != default_of(name):
            raise InputError(
                f"--{name.replace('_', '-')} is of no use with --replay, which serves nothing; leave it out"
            )
    ports = scenarios(setup.scenario, options.per_replica)
    folders = _folders(options.results, len(ports), options.per_replica)

    def played(at: int) -> Result:
        path = of_port(options.replay, at, options.per_replica)
        return result_of_run(setup, replay(ports[at], path))

    saved = [_save(partial(played, at), folder, setup.report) for at, folder in enumerate(folders)]
    return DONE if all(saved) else BAD_INPUT


def _wishes(options: argparse.Namespace) -> Wishes:
    """Return what the options ask for."""
    from simlora.serving.live import Wishes

    return Wishes(
        speed=options.speed,
        per_replica=options.per_replica,
        tokenizer=options.tokenizer,
        output_tokens=options.output_tokens,
        in_order=options.in_order,
        max_model_len=options.max_model_len,
        served_model_name=options.served_model_name,
        max_body_bytes=options.max_body_bytes,
        results=options.results is not None,
    )


def _folders(results: Path | None, ports: int, per_replica: bool) -> list[Path]:
    """Return the folder of each port's results, none without `results`. Raises InputError for one that cannot be."""
    if results is None:
        return []
    folders = [results / str(at) for at in range(ports)] if per_replica else [results]
    for each in folders:
        try:
            each.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(
                f"--results {each} cannot be written: {error.strerror}; must be a folder, or the name of a new one"
            ) from None
    return folders


def _save(made: Callable[[], Result], folder: Path, report: bool) -> bool:
    """Write the results of a port, or say why there are none; return False where they could not be written."""
    from simlora.serving.live import NoResult

    try:
        result = made()
    except NoResult as error:
        say(f"notice: no results in {folder}: {error}")
        return True
    try:
        result.save(folder, report=report)
    except InputError as error:  # the results of the other ports can still be written
        say(f"error: {error}")
        return False
    show(f"Results: {folder}")
    return True


if __name__ == "__main__":
    sys.exit(main())
