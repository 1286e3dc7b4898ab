"""Simulates one measured run of vLLM with LoRA."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd

from experiments.fidelity.vllm.rows import GPU, Row
from experiments.scenarios import scenario
from simlora.core.errors import InputError
from simlora.engine.cluster.simulation import Simulation
from simlora.latency.calibration import Calibration

SEQUENCES = 2048
"""Their max_num_seqs."""
STEP_TOKENS = 2048
"""Their max_num_batched_tokens."""
OUTSTANDING = 26_000
"""Requests that their client had open at once, however many it was to send.

In runs far past saturation the 99th percentile of first-token times, times the throughput, is 24,500 to 25,900
requests at any rate; 500 to 900 run besides. Linux lets a client open 28,232 connections to one address, of which
those closed within the last minute, 600 to 1,500, cannot be used again.
"""
ANSWERS = {"qwen_2_5_7b": 0.9835}
"""How long answers are in the model's own tokens, as against Llama-3.1's: 191.4 and 194.6 at the mean."""


def overrides(row: Row) -> list[str]:
    """Return the row as arguments of simlora's command line."""
    found = ["system=vllm", f"gpu={GPU}", f"model={row.model}"]
    found += [f"replica.max_loras={row.counts['max_loras']}"]
    found += [f"replica.max_cpu_loras={row.counts['max_cpu_loras']}"]
    found += [f"replica.max_lora_rank={row.counts['max_lora_rank']}"]
    found += [f"replica.max_num_seqs={SEQUENCES}", f"scheduler.max_batched_tokens={STEP_TOKENS}"]
    if row.kv_tokens is not None:
        found.append(f"replica.kv_token_budget={row.kv_tokens}")
    found += [f"cluster.max_outstanding={OUTSTANDING}"]
    found += ["workload=per_adapter", f"workload.adapters={row.counts['adapters']}"]
    found += [f"workload.ranks={list(row.ranks)}", f"workload.rates_rps={list(row.rates_rps)}"]
    found += [f"workload.counts={list(row.rate_counts)}", f"workload.duration_s={row.duration_s}"]
    if row.model in ANSWERS:
        found.append(f"workload.output_tokens.scale={ANSWERS[row.model]}")
    return [*found, f"seed={row.seed}", f"until_s={row.duration_s}", "timeline=false"]


def simulate(row: Row, calibration: Calibration | None = None) -> dict[str, float]:
    """Return the row's figures as simulated, under its own calibration or exactly another one.

    Raises InputError, naming file and line, for a row that cannot be simulated.
    """
    try:
        run = scenario(overrides(row))
    except InputError as error:
        raise InputError(f"{row.place}: {error}") from None
    run = run if calibration is None else replace(run, calibration=calibration)
    return figures(Simulation(run).run().requests(), row.duration_s)


def figures(requests: pd.DataFrame, duration_s: float) -> dict[str, float]:
    """Return what vLLM's client reports of the requests that were answered in the first `duration_s` seconds.

    The mean inter-token latency is over all tokens but the first ones.
    """
    done = requests[(requests["status"] == "finished") & (requests["finish_s"] <= duration_s)]
    output_tokens = int(done["output_tokens"].sum())
    found = {"completed": float(len(done)), "output_tokens_per_s": output_tokens / duration_s}
    if output_tokens > len(done):
        streaming_s = float((done["finish_s"] - done["first_token_s"]).sum())
        found["itl_mean_ms"] = 1000 * streaming_s / (output_tokens - len(done))
    if len(done):
        found["ttft_mean_ms"] = 1000 * float(done["ttft_s"].mean())
        found["ttft_p50_ms"] = 1000 * float(done["ttft_s"].median())
    return found
