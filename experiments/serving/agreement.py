"""Whether a client measures what the offline run of its arrivals says: `python -m experiments.serving.agreement`.

A client asks a live server for streamed answers of 50 adapters; the server records the requests, and simlora simulates
the record. Printed is what the client says beside the simulation, with the client's error. Programs of others are those
of `pip install openai aiperf guidellm locust`, each in an environment of its own: `--client aiperf=PATH`.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from experiments.serving.__main__ import serving
from experiments.serving.clients import CLIENTS, Asked, Measured
from experiments.studies.command import command, option
from simlora.api import simulate

SERVED = (
    *("system=vllm", "gpu=h100_64g", "model=llama_3_1_8b", "replica.max_loras=16"),
    *("replica.adapter_tokenizers=false", "report=false"),
)
HEADER = ("client", "answers", "failed", "median first token", "median time per token", "requests/s")


def measured(client: str, program: str, requests: int, rate_rps: float, tokens: int) -> list[Measured]:
    """Return what a client says, and the offline run of the requests that the server saw."""
    adapters = [f"adapter_{number}" for number in range(50)]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        path = folder / "seen.csv"
        with serving(["--record", str(path), *SERVED, "workload=per_adapter"]) as (address, _):
            said = CLIENTS[client](Asked(address, adapters, requests, rate_rps, tokens, folder), program)
        rows = simulate([*SERVED, "workload=file", f"workload.path={path}"]).tables["requests"]
    makespan_s = float(rows["finish_s"].max() - rows["arrival_s"].min())
    medians = rows[["ttft_s", "tpot_s"]].median()
    offline = Measured(len(rows), 0, medians["ttft_s"], medians["tpot_s"], len(rows) / makespan_s)
    return [said, offline]


def row(name: str, said: Measured, offline: Measured | None) -> str:
    """Return a row of the table; a client's has its error beside each figure."""
    cells = [name, f"{said.answered:,}", str(said.failed)]
    for figure in ("first_token_s", "time_per_token_s", "rate_rps"):
        value = getattr(said, figure)
        shown = f"{value:.3f}" if figure == "rate_rps" else f"{1e3 * value:.2f} ms"
        if offline is not None:
            truth = getattr(offline, figure)
            by = f"{value / truth - 1:+.1%}"
            shown += f" ({by})" if figure == "rate_rps" else f" ({by}, {1e3 * (value - truth):+.1f} ms)"
        cells.append(shown)
    return f"| {' | '.join(cells)} |"


@command(
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
    print(f"| {' | '.join(HEADER)} |")
    print("|---|" + "---:|" * (len(HEADER) - 1))
    for each in client or ["own", "openai"]:
        name, _, program = each.partition("=")
        said, offline = measured(name, program or name, requests, rate, tokens)
        print(row(name, said, offline))
        print(row("offline run of its requests", offline, None), flush=True)


if __name__ == "__main__":
    sys.exit(main())
