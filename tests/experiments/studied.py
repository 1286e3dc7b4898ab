"""A tiny paper: a study of two systems at two loads, and claims about it, in a folder of its own."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

import yaml

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
  - {where: {panel: small, series: lcfs, x: 1}, skip: nobody asked}
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
