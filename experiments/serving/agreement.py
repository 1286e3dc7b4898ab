"""Whether a client measures what the offline run of its arrivals says: `python -m experiments.serving.agreement`.

A client asks a live server for streamed answers of 50 adapters; the server records the requests, and simlora simulates
the record. Printed is what the client says beside the simulation, with the client's error. Then the client asks the
same of a server that runs a thousand times as fast: a first token there takes the client's own time, that of the
connection and the server's overhead. Programs of others are those of `pip install openai aiperf guidellm locust`, each
in an environment of its own: `--client aiperf=PATH`.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

from experiments.serving.__main__ import serving
from experiments.serving.clients import CLIENTS, Asked, Measured
from experiments.serving.load import ADAPTERS
from experiments.studies.command import option, program
from experiments.studies.reading import known
from simlora.api import simulate

SERVED = (
    *("system=vllm", "gpu=h100_64g", "model=llama_3_1_8b", "replica.max_loras=16"),
    *("replica.adapter_tokenizers=false", "report=false"),
)
AT_ONCE = 1000.0
"""Simulated seconds a second, at which a first token of 50 ms takes 50 µs."""
HEADER = (
    "client",
    "answers",
    "failed",
    "median first token",
    "of it the client's own",
    "median time per token",
    "requests/s",
)


def measured(
    client: str, program: str, requests: int, rate_rps: float, tokens: int
) -> tuple[Measured, Measured]:
    """Return what a client says, and the offline run of the requests that the server saw."""
    with tempfile.TemporaryDirectory() as name:
        path = Path(name, "seen.csv")
        said = asked(["--record", str(path)], client, program, requests, rate_rps, tokens)
        rows = simulate([*SERVED, "workload=file", f"workload.path={path}"]).tables["requests"]
    makespan_s = float(rows["finish_s"].max() - rows["arrival_s"].min())
    medians = rows[["ttft_s", "tpot_s"]].median()
    offline = Measured(len(rows), 0, medians["ttft_s"], medians["tpot_s"], len(rows) / makespan_s)
    return said, offline


def asked(
    how: Sequence[str], client: str, program: str, requests: int, rate_rps: float, tokens: int
) -> Measured:
    """Return what a client says of a server that is started `how`: `--record`, `--speed`."""
    with (
        tempfile.TemporaryDirectory() as folder,
        serving([*how, *SERVED, "workload=per_adapter"]) as (address, _),
    ):
        return CLIENTS[client](Asked(address, ADAPTERS, requests, rate_rps, tokens, Path(folder)), program)


def row(name: str, said: Measured, offline: Measured, own_s: float) -> str:
    """Return a row of the table: each figure as the client says it, that of the offline run, and what it is off by."""
    cells = [name, f"{said.answered:,}", str(said.failed)]
    for figure, unit, scale in (
        ("first_token_s", " ms", 1e3),
        ("time_per_token_s", " ms", 1e3),
        ("rate_rps", "", 1.0),
    ):
        theirs, ours = scale * getattr(said, figure), scale * getattr(offline, figure)
        cells.append(f"{theirs:,.4g}{unit}, offline {ours:,.4g}{unit} ({100 * (theirs / ours - 1):+.1f} %)")
    cells.insert(4, f"{1e3 * own_s:.1f} ms")
    return f"| {' | '.join(cells)} |"


@program(
    option(
        "--client",
        action="append",
        metavar="NAME[=PROGRAM]",
        help=f"one of {', '.join(CLIENTS)}; may be repeated (default: own and openai)",
    ),
    option("--rate", type=float, default=20.0, help="requests/s (default: 20)"),
    option("--requests", type=int, default=1000, help="(default: 1000)"),
    option("--tokens", type=int, default=40, help="of each answer (default: 40)"),
    about=__doc__,
)
def main(client: list[str] | None, rate: float, requests: int, tokens: int) -> None:
    """Measure and print."""
    clients = [each.partition("=") for each in client or ["own", "openai"]]
    for name, _, _ in clients:
        known(name, CLIENTS, "--client")
    print(f"| {' | '.join(HEADER)} |")
    print("|---|" + "---:|" * (len(HEADER) - 1))
    for name, _, path in clients:
        asking = name, path or name, requests, rate, tokens
        # The first token of a server that takes no time is the client's own.
        own_s = asked(["--speed", f"{AT_ONCE:g}"], *asking).first_token_s
        print(row(name, *measured(*asking), own_s), flush=True)
