"""The calibration file, with its provenance."""

from __future__ import annotations

from datetime import date
from typing import Any

from experiments.profiles.build import Built, plan
from simlora.calibrate.calibration_file import derived, written


def as_yaml(built: Built) -> str:
    """Return the file: names, provenance, and coefficients to five digits."""
    target = built.entry.target
    tree: dict[str, Any] = {
        "gpu": target.gpu.name,
        "model": target.model.name,
        "tp": target.tp,
        "provenance": provenance(built),
    }
    found = built.coefficients.items()
    return written(tree, {name: _five(value) for name, value in found})


def provenance(built: Built) -> dict[str, Any]:
    """Say where the coefficients come from, and how far off they are, as shares of what was measured."""
    entry, says = built.entry, plan()["says"]
    kind = "whole" if entry.iterations else "summed"
    file = f"{entry.iterations or entry.operators} of {entry.origin}"
    source, note = f"fitted to {file}", says[kind]
    if not entry.measured:
        source = f"{says[f'{kind}_elsewhere'].format(source=entry.source.name)}; {source}"
        note = f"{note}; {says['lines']}" if kind == "summed" else note
    return {
        "kind": "published" if entry.measured else "derived",
        "source": source,
        "command": f"python -m experiments.profiles {entry.name}",
        "date": date.today().isoformat(),
        "note": note,
        **{
            figure: {part: float(f"{getattr(one, figure):.3g}") for part, one in built.fits.items()}
            for figure in ("r2", "mape", "held_out_mape", "held_out_worst")
        },
        "coefficients": {name: derived(source) for name, source in built.derived.items()},
    }


def _five(value: float) -> float:
    return float(f"{value:.5g}") if value != int(value) else int(value)
