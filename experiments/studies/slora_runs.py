"""How S-LoRA's published benchmark runs are called: the cells of slora_runs.csv that a point's run must have."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fnmatch import fnmatchcase
from typing import Any

from experiments.fidelity.rows import MODELS, RANKS, Row, read

__all__ = ["FILE", "Row", "finder", "is_keyed", "read"]

FILE = "slora_runs.csv"
COLUMNS = {
    "gpu": "gpu",
    "replica.kv_token_budget": "kv_token_budget",
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


def finder(settings: Mapping[str, Any], also: Mapping[str, Any]) -> Callable[[Row], bool] | None:
    """Return what says whether a row is the run of these settings, with the cells `also` in place of its own.

    None if it is no run of these. A pool that is not on record may have been any.
    """
    if not _is_published(settings):
        return None
    cells = {column: settings[key] for key, column in COLUMNS.items() if key in settings}
    for key, name in RANGES.items():
        if key in settings:
            cells[f"{name}_lo"], cells[f"{name}_hi"] = settings[key]
    cells["system"] = system_of(settings)
    if setting := setting_of(settings):
        cells["setting"] = setting
    return lambda row: _has(row.columns, cells | dict(also))


def _has(columns: Mapping[str, str], wanted: Mapping[str, Any]) -> bool:
    return all(
        same(columns.get(column, ""), value)
        for column, value in wanted.items()
        if not (column == "kv_token_budget" and not columns[column])
    )


def same(cell: str, value: Any) -> bool:
    """Whether a cell has a value: the same number, or a text that matches the pattern."""
    try:
        return float(cell) == float(value)
    except (TypeError, ValueError):
        return fnmatchcase(cell, str(value))


def is_keyed(key: str, settings: Mapping[str, Any]) -> bool:
    """Whether a row's key (experiments/fidelity/rows.py) names the run of these settings.

    Campaign and pool do not count.
    """
    return _is_published(settings) and _cells_of(key) == _cells(settings)


def _is_published(settings: Mapping[str, Any]) -> bool:
    """Whether the workload is drawn with the seed of the published ones."""
    return bool(settings.get("workload.seed", SEED) == SEED)


def _cells(settings: Mapping[str, Any]) -> dict[str, Any]:
    cells: dict[str, Any] = {
        column: float(settings[key])
        for key, column in COLUMNS.items()
        if key in settings and key.startswith("workload.")
    }
    for key, name in RANGES.items():
        if key in settings:
            cells[f"{name}_lo"], cells[f"{name}_hi"] = map(float, settings[key])
    names = (system_of(settings), str(settings.get("gpu")), setting_of(settings))
    return cells | dict(zip(NAMES, names, strict=True))


def _cells_of(key: str) -> dict[str, Any]:
    """Return the cells of a row's key: system, GPU, setting, campaign, and then name=value."""
    system, gpu, setting, _, *rest = key.split()
    pairs = (part.partition("=")[::2] for part in rest)
    cells: dict[str, Any] = {name: float(value) for name, value in pairs if name != "kv_token_budget"}
    return cells | {"system": system, "gpu": gpu, "setting": setting}


def system_of(settings: Mapping[str, Any]) -> str:
    """Return the system as the file calls it: clustering has its number of adapters in the name."""
    system = str(settings["system"])
    return f"{system}_{settings['scheduler.clusters']}" if system == CLUSTERED else system


def setting_of(settings: Mapping[str, Any]) -> str:
    """Return S-LoRA's name for a model and its ranks; empty if it has none."""
    model, ranks = settings.get("model"), tuple(settings.get("workload.ranks", ()))
    return next((name for name in MODELS if MODELS[name] == model and RANKS[name] == ranks), "")
