"""Finds the measured runs that a point repeats, in the file of S-LoRA's published benchmark runs.

A run is found by what was run, not by a list of rows: system, GPU, model, ranks and all of the workload's
parameters are those of the point's settings. A study, panel or series may ask for other values with `measured`, and
for texts that match a pattern: `source: "*_cv_*"`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

from experiments.fidelity.rows import MODELS, RANKS, Row, read
from experiments.measured import measured_dir
from experiments.studies.metrics import METRICS
from experiments.studies.points import Point
from experiments.studies.study import Study

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
CLUSTERED = "slora_cluster"
SEED = 42
"""The seed of every published workload."""


def rows() -> list[Row] | None:
    """Return all measured runs, None if the file is not there."""
    path = measured_dir() / "slora_runs.csv"
    return read(path) if path.exists() else None


def published(study: Study, point: Point, measured: Sequence[Row] | None) -> dict[str, list[Any]]:
    """Return what was printed or measured of a point, by metric: a list, for a run may have been repeated."""
    printed = study.printed.get((point.panel, point.series, point.x))
    if printed:
        return {metric: [value] for metric, value in printed.items()}
    if study.printed or measured is None or not is_published(point.settings):
        return {}
    wanted = wanted_cells(study, point)
    found: dict[str, list[Any]] = {}
    for row in measured:
        if matches(row, wanted):
            for metric in study.metrics:
                column = METRICS[metric].measured
                if column and row.columns.get(column):
                    found.setdefault(metric, []).append(float(row.columns[column]))
    return found


def is_published(settings: Mapping[str, Any]) -> bool:
    """Whether the workload is drawn with the seed of the published ones."""
    return bool(settings.get("workload.seed", SEED) == SEED)


def wanted_cells(study: Study, point: Point) -> dict[str, Any]:
    """Return the cells that a row must have to be the point's run."""
    settings = point.settings
    cells = {column: settings[key] for key, column in COLUMNS.items() if key in settings}
    for key, name in RANGES.items():
        if key in settings:
            cells[f"{name}_lo"], cells[f"{name}_hi"] = settings[key]
    cells["system"] = system_of(settings)
    setting = setting_of(settings)
    if setting:
        cells["setting"] = setting
    overrides = (study.measured, study.panel(point.panel).measured, study.series_named(point.series).measured)
    for cell in overrides:
        cells |= cell
    return cells


def matches(row: Row, wanted: Mapping[str, Any]) -> bool:
    """Whether a row has all wanted cells. A pool that is not on record may have been any."""
    return all(
        _same(row.columns.get(column, ""), value)
        for column, value in wanted.items()
        if not (column == "kv_token_budget" and not row.columns[column])
    )


def _same(cell: str, value: Any) -> bool:
    try:
        return float(cell) == float(value)
    except (TypeError, ValueError):
        return fnmatchcase(cell, str(value))


def system_of(settings: Mapping[str, Any]) -> str:
    """Return the system as the file calls it: clustering has its number of adapters in the name."""
    system = str(settings["system"])
    return f"{system}_{settings['scheduler.clusters']}" if system == CLUSTERED else system


def setting_of(settings: Mapping[str, Any]) -> str:
    """Return S-LoRA's name for a model and its ranks; empty if it has none."""
    model, ranks = settings.get("model"), tuple(settings.get("workload.ranks", ()))
    return next((name for name in MODELS if MODELS[name] == model and RANKS[name] == ranks), "")
