"""LiteLLM's proxy in front of four live replicas, and simlora's router of the same kind offline.

`python -m experiments.serving.routed --litellm PATH`: PATH is the proxy's program, from `pip install 'litellm[proxy]'`
in an environment of its own. Each rule serves the same requests, of adapters whose popularity is Zipf's. Printed are
the requests/s that reached the replicas, the requests and the distinct adapters of each, the loads, and first tokens in
simulated time. The proxy serves few requests a second: the replicas run slower than real time (`--speed`), so that it
is not the proxy that is measured.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pandas as pd
import yaml

from experiments.serving.load import ADAPTERS, PROMPT_TOKENS, arrivals_s, load, run
from experiments.studies.command import option, program
from simlora.api import simulate

REPLICAS, RANK = 4, 8
REPLICA = (
    *("system=vllm", "gpu=h100_64g", "model=llama_3_1_8b", "replica.max_loras=8"),
    *("replica.adapter_tokenizers=false", f"cluster.replicas={REPLICAS}", "report=false"),
)
RULES = {"simple-shuffle": "random", "least-busy": "litellm_least_busy"}
"""LiteLLM's strategies (docs/routing of LiteLLM), and simlora's routers of their kind."""
READY_S = 120


def drawn(requests: int, seed: int) -> list[str]:
    """Return the adapter of each request: the k-th has a share as 1 / k."""
    shares = 1.0 / np.arange(1, len(ADAPTERS) + 1)
    numbers = np.random.default_rng(seed).choice(len(ADAPTERS), requests, p=shares / shares.sum())
    return [ADAPTERS[number] for number in numbers]


def free_ports(count: int) -> int:
    """Return the first of so many neighbouring ports that are free now."""
    for first in range(20_000, 60_000, count):
        try:
            for port in range(first, first + count):
                socket.create_server(("127.0.0.1", port)).close()
        except OSError:
            continue
        return first
    raise OSError("no ports are free")


@contextmanager
def started(command: Sequence[str], ready: str, **environment: str) -> Iterator[None]:
    """Run a server until the block ends; it is ready when the address `ready` answers."""
    process = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=os.environ | environment
    )
    try:
        until_s = time.monotonic() + READY_S
        while time.monotonic() < until_s:
            assert process.poll() is None, f"{command[0]} has ended"
            try:
                urllib.request.urlopen(ready, timeout=1).close()
                break
            except OSError:
                time.sleep(0.5)
        yield
    finally:
        process.terminate()
        process.wait()


def live(
    litellm: str, strategy: str, adapters: Sequence[str], rate_rps: float, tokens: int, speed: float
) -> tuple[str, ...]:
    """Return a row of what the replicas saw behind LiteLLM, in simulated time, `speed` seconds of it in a second."""
    first = free_ports(REPLICAS + 1)
    address = f"http://127.0.0.1:{first + REPLICAS}"
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        config = {
            "model_list": [
                {
                    "model_name": adapter,
                    "litellm_params": {
                        "model": f"text-completion-openai/{adapter}",
                        "api_base": f"http://127.0.0.1:{first + replica}/v1",
                        "api_key": "none",
                    },
                }
                for adapter in ADAPTERS
                for replica in range(REPLICAS)
            ],
            "router_settings": {"routing_strategy": strategy, "num_retries": 0},
        }
        (folder / "litellm.yaml").write_text(yaml.safe_dump(config))
        serve = [sys.executable, "-m", "simlora.cli.serve", "--per-replica", "--port", str(first)]
        serve += ["--speed", str(speed), "--results", str(folder / "out"), *REPLICA]
        serve += ["workload=per_adapter", f"workload.adapters={len(ADAPTERS)}", f"workload.ranks=[{RANK}]"]
        proxy = [litellm, "--config", str(folder / "litellm.yaml"), "--port", str(first + REPLICAS)]
        local = {
            "LITELLM_LOCAL_MODEL_COST_MAP": "True",
            "LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY": "true",
        }
        with (
            started(serve, f"http://127.0.0.1:{first}/health"),
            started(proxy, f"{address}/health/liveliness", **local),
        ):
            seen = run(load(address, rate_rps * speed, tokens, adapters, len(adapters)))
        tables, loads = [], 0
        for replica in range(REPLICAS):
            out = folder / "out" / str(replica)
            tables.append(pd.read_parquet(out / "requests.parquet").assign(replica=replica))
            loads += json.loads((out / "summary.json").read_text())["adapters"]["loads"]
    return (f"LiteLLM {strategy}", *_row(pd.concat(tables), loads), str(seen.failed))


def offline(router: str, adapters: Sequence[str], rate_rps: float, tokens: int) -> tuple[str, ...]:
    """Return a row of the same requests behind simlora's router."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "trace.csv")
        pd.DataFrame(
            {
                "arrival_s": arrivals_s(rate_rps, len(adapters)),
                "adapter": adapters,
                "rank": RANK,
                "prompt_tokens": PROMPT_TOKENS,
                "output_tokens": tokens,
            }
        ).to_csv(path, index=False)
        result = simulate([*REPLICA, f"router={router}", "workload=file", f"workload.path={path}"])
    return (f"simlora {router}", *_row(result.tables["requests"], result.summary["adapters"]["loads"]), "")


def _row(requests: pd.DataFrame, loads: int) -> tuple[str, ...]:
    by_replica = requests.groupby("replica")["adapter"]
    between_s = requests["arrival_s"].max() - requests["arrival_s"].min()
    return (
        f"{(len(requests) - 1) / between_s:.1f}",
        " ".join(map(str, by_replica.size())),
        " ".join(map(str, by_replica.nunique())),
        str(loads),
        f"{1e3 * requests['ttft_s'].median():.1f}",
        f"{1e3 * requests['ttft_s'].quantile(0.95):.0f}",
    )


@program(
    option("--litellm", default="litellm", help="the proxy's program (default: litellm)"),
    option("--requests", type=int, default=1000),
    option("--rate", type=float, default=20.0, help="requests/s of simulated time (default: 20)"),
    option(
        "--speed",
        type=float,
        default=0.1,
        help="seconds that the live replicas simulate in one (default: 0.1, as the proxy takes a tenth of a second "
        "a request)",
    ),
    option("--tokens", type=int, default=40, help="of each answer (default: 40)"),
    about=__doc__,
)
def main(litellm: str, requests: int, rate: float, speed: float, tokens: int) -> None:
    """Measure and print."""
    adapters = drawn(requests, seed=0)
    print(
        "| rule | requests/s | of each replica | adapters of each | loads | TTFT p50, ms | p95, ms | failed |"
    )
    print("|---|---|---|---|---|---|---|---|")

    def say(row: tuple[str, ...]) -> None:
        print(f"| {' | '.join(row)} |", flush=True)

    for strategy, router in RULES.items():
        say(live(litellm, strategy, adapters, rate, tokens, speed))
        say(offline(router, adapters, rate, tokens))
    say(offline("adapter_affinity", adapters, rate, tokens))
