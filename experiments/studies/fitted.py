"""Says which runs of a study are runs that the calibration's coefficients were fitted to.

A calibration keeps the keys of its fitted rows (experiments/fidelity); the summary of a run has them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from experiments.studies.measured import schema


def was_fitted(settings: Mapping[str, Any], summary: Mapping[str, Any]) -> bool:
    """Whether coefficients were fitted to the published run of these settings. Campaign and pool do not count."""
    runs = schema(str(settings["system"]))
    return any(runs.is_keyed(key, settings) for key in _keys(summary))


def _keys(summary: Mapping[str, Any]) -> Iterator[str]:
    provenance = summary.get("calibration", {}).get("provenance", {})
    yield from provenance.get("fitted_rows", ())
    for added in provenance.get("additions", {}).values():
        yield from added.get("fitted_rows", ())
