"""Whether a client measures what the offline run of its arrivals says: `python -m experiments.serving.agreement`.

A client asks a live server for 1,000 streamed answers of 50 adapters; the server records them, and simlora simulates
the record. Printed are medians of the client and of the simulation.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import numpy as np

from experiments.serving.__main__ import serving
from experiments.serving.load import load, run
from experiments.studies.command import command, option
from simlora.api import simulate

REPLICA = ("system=vllm", "gpu=h100_64g", "model=llama_3_1_8b", "replica.max_loras=16")
SHARED = ("replica.adapter_tokenizers=false", "report=false")
WORKLOAD = "workload=per_adapter"


@command(
    option("--rate", type=float, default=20.0),
    option("--requests", type=int, default=1000),
    option("--tokens", type=int, default=40),
    about=__doc__,
)
def main(rate: float, requests: int, tokens: int) -> None:
    """Measure and print."""
    adapters = [f"adapter_{number}" for number in range(50)]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "seen.csv")
        with serving(["--record", str(path), *REPLICA, *SHARED, WORKLOAD]) as (address, _):
            seen = run(load(address, rate, tokens, adapters, requests / rate))
        result = simulate([*REPLICA, *SHARED, "workload=file", f"workload.path={path}"])
    rows = result.tables["requests"]
    first_token_s = rows.first_token_s - rows.arrival_s
    gap_s = result.summary["tbt_s"]["p50"]
    makespan_s = rows.finish_s.max() - rows.arrival_s.min()
    print(
        f"{seen.answered} answers, {seen.failed} failed; client, then offline run of what the server recorded"
    )
    print(f"median first token  {np.median(seen.first_token_s):8.4f} s  {first_token_s.median():8.4f} s")
    print(f"median gap          {np.median(seen.gaps_s):8.4f} s  {gap_s:8.4f} s")
    print(f"requests/s          {seen.answered / seen.seconds:8.3f}    {len(rows) / makespan_s:8.3f}")


if __name__ == "__main__":
    sys.exit(main())
