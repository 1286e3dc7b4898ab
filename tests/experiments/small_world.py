"""A tiny world: two workloads of a few hundred requests, two systems, one GPU."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from experiments.cross_table.world import System, World, read

WORLD = """
hardware: {gpu: a10g, model: llama_7b, engine: null, kernel: mbgmv, cluster.replicas: 1, replica.tp: 1}
slo: {slo.ttft_s: 2, slo.tpot_s: null}
workloads:
  short:
    title: Short ones, many
    paper: none
    for: training
    about: short answers
    key: workload.arrivals.rate_rps
    start: 24
    set: &few
      workload: synthetic
      workload.adapters: 8
      workload.duration_s: null
      workload.requests: 200
      workload.prompt_tokens.hi: 128
      workload.output_tokens.hi: 64
  long:
    title: Longer ones
    paper: none
    for: held_out
    about: longer answers
    key: workload.arrivals.rate_rps
    start: 5
    set: {<<: *few, workload.output_tokens.hi: 256}
systems:
  slora: {title: S-LoRA, system: slora}
  lcfs: {title: newest first, system: slora_lcfs}
  eager: {title: eager, system: slora, set: {replica.max_wait_tokens: 0, loader: asynchronous, replica.max_num_seqs: 8}}
"""


def written(folder: Path, text: str = WORLD) -> Path:
    """Write a world into a folder."""
    path = folder / "world.yaml"
    path.write_text(text)
    return path


def small_world(folder: Path) -> World:
    """Return the tiny world."""
    return read(written(folder))


def slora(name: str, settings: dict[str, Any]) -> System:
    """Return a system that is S-LoRA but for these settings."""
    return System(name, "", {"system": "slora", **settings})
