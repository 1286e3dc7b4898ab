"""Campaigns whose machine was not quite as fast as the one that its GPU's calibration was fitted to."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from experiments.fidelity.rows import Row
from simlora.latency import calibration as calibrations
from simlora.latency.calibration import Calibration

CAMPAIGNS = Path(__file__).with_name("campaigns.yaml")


def stretched(calibration: Calibration, factor: float) -> Calibration:
    """Return a calibration all of whose times are `factor` times as long."""
    coefficients = {
        name: value / factor if name.endswith("bytes_per_s") else value * factor
        for name, value in calibration.coefficients.items()
    }
    return replace(calibration, coefficients=coefficients)


def calibration_of(row: Row) -> Calibration:
    """Return the calibration of the row's GPU and model, stretched if its campaign was fitted on its own."""
    found = calibrations.load(row.calibration)
    entry = _entry(row)
    return stretched(found, entry["time_factor"]) if entry else found


def fitted_rows(row: Row) -> set[str]:
    """Return the keys of the rows that this row's coefficients were fitted to."""
    own = _entry(row).get("fitted_rows", ())
    return {*calibrations.load(row.calibration).provenance.get("fitted_rows", ()), *own}


def _entry(row: Row) -> dict[str, Any]:
    return dict(_table().get(row.columns["campaign"], {}).get(row.columns["gpu"], {}))


@cache
def _table() -> dict[str, Any]:
    return yaml.safe_load(CAMPAIGNS.read_text(encoding="utf-8")) if CAMPAIGNS.exists() else {}
