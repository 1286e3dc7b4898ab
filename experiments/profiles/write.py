"""The calibration file, with its provenance."""

from __future__ import annotations

from datetime import date
from typing import Any

from experiments.profiles.build import Built
from simlora.calibrate.calibration_file import written

SUMMED = (
    "sums of kernels: what a host takes to launch them, to sample and to schedule is not in them; "
    "attention is in the coefficients of the operators too, where it is constant or linear in tokens"
)
WHOLE = (
    "whole iterations of an engine, host and base model's communication included; collectives are for LoRA"
)
SCALED = "operators of {source} by roofline: weights over memory bandwidth, or arithmetic over peak FLOP/s"
LINES = "the errors are those of linear forms against the scaled times; docs/calibrations.md has those of the scaling"
SAME_CHIP = "whole iterations of {source}: the same chip, but for its link"


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
    entry = built.entry
    file = entry.iterations or entry.operators
    return {
        "kind": "published" if entry.measured else "derived",
        "source": f"fitted to {file} of {entry.origin}" if entry.measured else _scaled(built),
        "command": f"python -m experiments.profiles {entry.name}",
        "date": date.today().isoformat(),
        "note": _note(built),
        **{
            figure: {part: float(f"{getattr(one, figure):.3g}") for part, one in built.fits.items()}
            for figure in ("r2", "mape", "held_out_mape", "held_out_worst")
        },
        "coefficients": {
            name: {"kind": "derived", "source": source} for name, source in built.derived.items()
        },
    }


def _note(built: Built) -> str:
    if built.entry.iterations:
        return WHOLE
    return SUMMED if built.entry.measured else f"{SUMMED}; {LINES}"


def _scaled(built: Built) -> str:
    entry = built.entry
    how = SAME_CHIP if entry.iterations else SCALED
    return f"{how.format(source=entry.source.name)}; fitted to {entry.iterations or entry.operators} of {entry.origin}"


def _five(value: float) -> float:
    return float(f"{value:.5g}") if value != int(value) else int(value)
