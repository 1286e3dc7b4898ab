"""Writes a fitted calibration in the simulator's format, with where every number came from."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Any

import pandas as pd
import yaml

from profiler.fit import Fitted
from simlora.core.files import whole_file
from simlora.latency import calibration as calibrations

DIGITS = 5


def provenance(
    identity: Mapping[str, Any], command: str, fitted: Sequence[Fitted], table: pd.DataFrame
) -> dict[str, Any]:
    """Return how the coefficients came about, and how far off the points are that a fit has not seen."""
    return {
        "kind": "measured",
        "source": "measured by simlora-profile",
        "command": command,
        "date": date.today().isoformat(),
        **{name: value for name, value in identity.items() if value},
        **({"commit": found} if (found := commit()) else {}),
        "samples": int(table["samples"].sum()),
        "r2": {each.model.name: round(each.r2, 4) for each in fitted},
        "mape": {each.model.name: round(each.mape, 4) for each in fitted},
        "intervals_95": {
            f"{each.model.name}.{name}": [_short(low), _short(high)]
            for each in fitted
            for name, (low, high) in each.intervals.items()
        },
    }


def coefficients(fitted: Sequence[Fitted], table: pd.DataFrame) -> dict[str, float]:
    """Return coefficients by the dotted names that a calibration has for them."""
    found = {
        f"{each.model.name}.{name}": value for each in fitted for name, value in each.coefficients.items()
    }
    if "adapter_load.s_per_byte" in found:
        found["adapter_load.bytes_per_s"] = 1.0 / max(found.pop("adapter_load.s_per_byte"), 1e-15)
    syncs = table[table["section"] == "cpu_sync"]["seconds"]
    if len(syncs):
        found["cpu_lora.sync_s"] = float(syncs.iloc[0])
    return found


def calibration(
    path: Path,
    gpu: str,
    model: str,
    fitted: Sequence[Fitted],
    table: pd.DataFrame,
    about: Mapping[str, Any],
) -> None:
    """Write the YAML of a calibration, checked by the simulator's own reader; whole or not at all."""
    tree: dict[str, Any] = {"gpu": gpu, "model": model, "tp": 1, "provenance": dict(about)}
    for name, value in coefficients(fitted, table).items():
        *parents, leaf = name.split(".")
        node: dict[Any, Any] = tree
        for parent in parents:
            node = node.setdefault(parent, {})
        node[int(leaf) if leaf.isdigit() else leaf] = _short(value)
    text = yaml.safe_dump(tree, sort_keys=False, width=110)
    calibrations.parse(text, str(path))
    path.parent.mkdir(parents=True, exist_ok=True)
    with whole_file(path) as draft:
        draft.write_text(text, encoding="utf-8")


def commit() -> str:
    """Return the commit that this code is of, with a + if files were changed since; empty where git does not say."""
    here = Path(__file__).resolve().parent
    try:
        said = subprocess.run(
            ["git", "describe", "--always", "--dirty=+", "--abbrev=12"],
            cwd=here,
            capture_output=True,
            text=True,
            check=True,
        )
    except (OSError, subprocess.CalledProcessError):
        return ""
    return said.stdout.strip()


def _short(value: float) -> float:
    return float(f"{value:.{DIGITS}g}")
