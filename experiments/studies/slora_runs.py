"""How S-LoRA's published benchmark runs are called: what slora_runs.csv says of the run that a point repeats."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from experiments.fidelity.rows import MODELS, RANKS, WORKLOAD, Row, read

__all__ = ["FILE", "POOL", "Row", "columns_of", "read", "run", "run_of"]

FILE, POOL = "slora_runs.csv", "kv_token_budget"
COLUMNS = {
    "workload.adapters": "num_adapters",
    "workload.alpha": "alpha",
    "workload.rate_rps": "req_rate",
    "workload.cv": "cv",
    "workload.duration_s": "duration_s",
}
RANGES = {"workload.prompt_tokens": "prompt", "workload.output_tokens": "output"}
NAMES = ("system", "gpu", "setting")
CLUSTERED = "slora_cluster"
SEED = 42
"""The seed of every published workload."""


def run(settings: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the cells of the run of these settings; None if no published run has its kind of workload, or its seed.

    All were of one replica.
    """
    if settings.get("workload") != "slora" or settings.get("workload.seed", SEED) != SEED:
        return None
    if settings.get("cluster.replicas", 1) != 1:
        return None
    told = {column: settings[key] for key, column in COLUMNS.items() if key in settings}
    for key, name in RANGES.items():
        if key in settings:
            told[f"{name}_lo"], told[f"{name}_hi"] = settings[key]
    if not all(isinstance(value, int | float) for value in told.values()):
        return None
    cells = {column: float(value) for column, value in told.items()}
    names = {"system": system_of(settings), "gpu": settings.get("gpu"), "setting": setting_of(settings)}
    return cells | {name: str(value) for name, value in names.items() if value}


def run_of(columns: Mapping[str, str]) -> dict[str, Any]:
    """Return the cells of a row's run."""
    return {name: columns[name] for name in NAMES} | {name: float(columns[name]) for name in WORKLOAD}


def columns_of(key: str) -> dict[str, str]:
    """Return the columns that a row's key is made of: system, GPU, setting, campaign, and then name=value."""
    system, gpu, setting, _, *rest = key.split()
    pairs = dict(part.partition("=")[::2] for part in rest)
    return pairs | {"system": system, "gpu": gpu, "setting": setting}


def system_of(settings: Mapping[str, Any]) -> str:
    """Return the system as the file calls it: clustering has its number of adapters in the name."""
    system = str(settings["system"])
    return f"{system}_{settings['scheduler.clusters']}" if system == CLUSTERED else system


def setting_of(settings: Mapping[str, Any]) -> str:
    """Return S-LoRA's name for a model and its ranks; empty if it has none."""
    model, ranks = settings.get("model"), tuple(settings.get("workload.ranks", ()))
    return next((name for name in MODELS if MODELS[name] == model and RANKS[name] == ranks), "")
