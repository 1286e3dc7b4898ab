"""Simulates one measured run."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from importlib import resources
from pathlib import Path

import pandas as pd

from experiments.fidelity.campaigns import calibration_of
from experiments.fidelity.rows import Row
from experiments.fidelity.servers import server
from experiments.scenarios import scenario
from simlora.core.trace import Trace
from simlora.engine.cluster.simulation import Simulation
from simlora.engine.scenario import Scenario
from simlora.latency.calibration import Calibration
from simlora.workload.slora import SLora

TTFT_TARGET_S = 6.0
PLACEHOLDER = Path(__file__).with_name("placeholder.yaml")


def known_systems() -> set[str]:
    """Return the systems that simlora has."""
    folder = resources.files("simlora") / "conf" / "system"
    return {entry.name.removesuffix(".yaml") for entry in folder.iterdir()}


def trace(row: Row) -> Trace:
    """Regenerate the row's workload; the tokenizer put one token in front of every prompt."""
    w = row.workload
    return SLora(
        adapters=int(w["num_adapters"]),
        alpha=w["alpha"],
        rate_rps=w["req_rate"],
        cv=w["cv"],
        duration_s=w["duration_s"],
        prompt_tokens=(int(w["prompt_lo"]), int(w["prompt_hi"])),
        output_tokens=(int(w["output_lo"]), int(w["output_hi"])),
        ranks=row.ranks,
        bos_tokens=1,
    ).build(0)


@lru_cache(maxsize=64)
def _scenario(overrides: tuple[str, ...]) -> Scenario:
    return scenario(overrides)


def simulate(row: Row, calibration: Calibration | None = None) -> dict[str, float]:
    """Return the row's figures as simulated, under its own calibration or exactly another one."""
    found = calibration or calibration_of(row)
    overrides = (*server(row), f"calibration={PLACEHOLDER}", "timeline=false")
    run = replace(_scenario(overrides), trace=trace(row), calibration=found)
    return figures(Simulation(run).run().requests(), streamed=row.system != "vllm_packed")


def figures(requests: pd.DataFrame, streamed: bool = True) -> dict[str, float]:
    """Return what S-LoRA's client reported. Attainment is over all requests, means over those answered.

    An answer that is not `streamed` comes whole: to the client its first token is its last.
    """
    done = requests[requests["status"] == "finished"]
    first_token_s = done["ttft_s" if streamed else "latency_s"]
    attained = {"attainment_6s": float((first_token_s < TTFT_TARGET_S).sum() / len(requests))}
    if done.empty:
        return attained
    return {
        "throughput_rps": len(done) / float(done["finish_s"].max()),
        "mean_latency_s": float(done["latency_s"].mean()),
        "mean_first_token_s": float(first_token_s.mean()),
        **attained,
    }
