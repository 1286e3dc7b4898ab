"""Campaigns that ran another build of the LoRA kernels than the one that a calibration was fitted to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from experiments.fidelity.rows import Row
from experiments.studies.reading import load as read_sheet
from simlora.latency import calibration as calibrations
from simlora.latency.calibration import Calibration

CAMPAIGNS = Path(__file__).with_name("campaigns.yaml")


def matches(row: Row, selectors: Sequence[Mapping[str, Any]]) -> bool:
    """Whether the row has all values of one of the selectors; a list: any of its values."""
    cells = {**row.columns, **row.workload, "series": row.file}
    return any(
        all(
            cells[name] in (wanted if isinstance(wanted, list) else [wanted]) for name, wanted in each.items()
        )
        for each in selectors
    )


def slowed(calibration: Calibration, factor: float) -> Calibration:
    """Return a calibration all of whose LoRA kernels take `factor` times as long."""
    coefficients = {
        name: value * factor if name.startswith("kernels.") else value
        for name, value in calibration.coefficients.items()
    }
    return replace(calibration, coefficients=coefficients)


def calibration_of(row: Row, calibration: Calibration | None = None) -> Calibration:
    """Return the calibration of the row's GPU and model, or the given one instead of it.

    Its kernels are slowed if the row's campaign was fitted on its own.
    """
    found = calibration or calibrations.load(row.calibration)
    entry = _entry(row)
    return slowed(found, entry["kernel_factor"]) if entry else found


def fitted_rows(row: Row) -> set[str]:
    """Return the keys of the rows that this row's coefficients were fitted to."""
    provenance = calibrations.load(row.calibration).provenance
    added = [entry.get("fitted_rows", ()) for entry in provenance.get("additions", {}).values()]
    own = _entry(row).get("fitted_rows", ())
    return {*provenance.get("fitted_rows", ()), *own, *(key for keys in added for key in keys)}


def _entry(row: Row) -> dict[str, Any]:
    return next((entry for entry in _table().values() if matches(row, [entry["where"]])), {})


@cache
def _table() -> dict[str, Any]:
    return read_sheet(CAMPAIGNS) if CAMPAIGNS.exists() else {}
