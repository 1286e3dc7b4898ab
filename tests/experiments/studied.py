"""A tiny paper: a study of two systems at two loads, and claims about it, in a folder of its own."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

import yaml

from experiments.claims.claim import Claim
from experiments.studies.points import Point
from tests.experiments.test_fidelity import a_file

STUDY = """
title: Two systems at two loads
source: made up for the tests
metrics: [throughput_rps, slo.attainment]
x: {key: workload.rate_rps, label: requests/s, values: [1, 2]}
set:
  gpu: a10g
  model: llama_7b
  replica.kv_token_budget: 14500
  workload: slora
  workload.adapters: 5
  workload.ranks: [8]
  workload.alpha: 1
  workload.cv: 1
  workload.duration_s: 10
  workload.prompt_tokens: [8, 512]
  workload.output_tokens: [8, 64]
panels:
  small: {title: a small pool, set: {replica.kv_token_budget: 5000}}
  large: {title: a large pool, x: [2]}
series:
  fcfs: {title: FCFS, system: slora}
  lcfs: {title: LCFS, system: slora_lcfs}
rules:
  - {where: {panel: small, series: lcfs, x: 1}, skip: not asked for}
  - {where: {panel: small, x: [1, 2]}, set: {replica.kv_token_budget: 6000}}
  - {where: {panel: small, x: 2}, set: {replica.kv_token_budget: 7000}}
printed:
  small:
    fcfs: {1: [0.9, 1.0], 2: [1.8, OOM]}
"""


def tree(**changes: Any) -> dict[str, Any]:
    """Return the study as a tree with top-level keys changed; None takes one out."""
    found = yaml.safe_load(STUDY) | changes
    return {key: value for key, value in found.items() if value is not None}


def a_study(folder: Path, name: str = "figure_1", **changes: Any) -> Path:
    """Write the study into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.yaml"
    path.write_text(yaml.safe_dump(tree(**changes), sort_keys=False))
    return path


def claims(folder: Path, text: str) -> Path:
    """Write claims into a folder that has the study."""
    a_study(folder)
    path = folder / "claims.yaml"
    path.write_text("claims:\n" + textwrap.indent(textwrap.dedent(text).strip("\n"), "  ") + "\n")
    return path


VLLM_STUDY = """
title: vLLM over its slots
source: made up for the tests
metrics: [throughput_tps, tbt_s.mean, ttft_s.p50]
logarithmic: [ttft_s.p50]
x: {key: replica.max_loras, label: slots, values: [2, 4]}
set:
  gpu: h100_64g
  model: llama_3_1_8b
  replica.max_lora_rank: 16
  replica.max_cpu_loras: 8
  replica.max_num_seqs: 2048
  scheduler.max_batched_tokens: 2048
  workload: per_adapter
  workload.adapters: 4
  workload.ranks: [8, 16]
  workload.rates_rps: [0.8, 0.4, 0.1]
  workload.duration_s: 20
  until_s: 20
panels:
  all: {title: four adapters}
series:
  vllm: {title: vLLM, system: vllm}
"""
VLLM_CELLS = {
    "model": "llama-3.1-8b-instruct",
    "max_loras": "2",
    "max_cpu_loras": "4",
    "max_lora_rank": "16",
    "kv_tokens": "250000",
    "adapters": "4",
    "module_ranks": "8 16",
    "rate_values": "0.1 0.4 0.8",
    "rate_counts": "1 1 2",
    "duration_s": "20",
    "output_tokens_per_s": "400",
    "itl_mean_ms": "20",
    "ttft_mean_ms": "80",
    "ttft_p50_ms": "50",
    "set": "test",
}
"""The measured run of the study's first point."""


def a_vllm_study(
    folder: Path, name: str = "slots", settings: dict[str, Any] | None = None, **changes: Any
) -> Path:
    """Write the study into a folder, with other settings of all points; a setting of None takes one out."""
    found = yaml.safe_load(VLLM_STUDY) | changes
    merged = found["set"] | (settings or {})
    found["set"] = {key: value for key, value in merged.items() if value is not None}
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.yaml"
    path.write_text(yaml.safe_dump(found, sort_keys=False))
    return path


def vllm_runs_csv(folder: Path, *changes: dict[str, str]) -> Path:
    """Write measured runs that differ from that of the study's first point by these cells."""
    folder.mkdir(parents=True, exist_ok=True)
    return a_file(folder, *changes, row=VLLM_CELLS).rename(folder / "vllm_lora_runs.csv")


def runs_of(claim: Claim) -> list[Point]:
    """Return the runs that a claim may be about, some perhaps twice."""
    return [point for spot in claim.spots_looked_at() for point in spot.points]
