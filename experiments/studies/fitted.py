"""Says which runs of a study are runs that the calibration's coefficients were fitted to.

A calibration keeps the keys of its fitted rows (experiments/fidelity/rows.py); the summary of a run has them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from experiments.studies.measured import COLUMNS, RANGES, is_published, setting_of, system_of

NAMES = ("system", "gpu", "setting")


def was_fitted(settings: Mapping[str, Any], summary: Mapping[str, Any]) -> bool:
    """Whether coefficients were fitted to the published run of these settings. Campaign and pool do not count."""
    wanted = _cells(settings)
    return is_published(settings) and any(_cells_of(key) == wanted for key in _keys(summary))


def _keys(summary: Mapping[str, Any]) -> Iterator[str]:
    provenance = summary.get("calibration", {}).get("provenance", {})
    yield from provenance.get("fitted_rows", ())
    for added in provenance.get("additions", {}).values():
        yield from added.get("fitted_rows", ())


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
