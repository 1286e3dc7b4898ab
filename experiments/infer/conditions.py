"""Runs under conditions: the points of studies with what a setting of the unknowns changes in them."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from experiments.infer.unknowns import Setting, Unknowns
from experiments.studies.points import Point
from simlora.api.cache import cache_dir
from simlora.api.preparing import composed
from simlora.calibrate.calibration_file import CALIBRATIONS, derived, save
from simlora.config.setup import resolved
from simlora.core.errors import InputError

IRRELEVANT = (
    "workload",
    "slo.",
    "seed=",
    "timeline=",
    "report=",
    "progress=",
    "cluster.",
    "router",
    "scheduler",
)
"""Overrides that do not choose a calibration."""


def under(unknowns: Unknowns, setting: Setting, seed: int, point: Point) -> Point:
    """Return a study's point as it is run under a setting, with this seed of everything random."""
    settings: dict[str, Any] = {}
    coefficients: dict[str, tuple[float, float]] = {}
    for unknown in unknowns.unknowns:
        value = setting[unknown.name]
        if value == unknown.default or not unknown.concerns(point):
            continue
        changes = unknown.choices[value] if isinstance(value, str) else unknown.changes
        settings |= changes.settings(value)
        if not isinstance(value, str) and not isinstance(unknown.default, str):
            for path, (factor, more) in changes.coefficients(value, unknown.default).items():
                times, plus = coefficients.get(path, (1.0, 0.0))
                coefficients[path] = (times * factor, plus + more)
    changed = replace(point, settings={**point.settings, **settings, "seed": seed})
    if coefficients:
        path = _calibration(
            _base(tuple(o for o in changed.overrides if not o.startswith(IRRELEVANT))), coefficients
        )
        changed = replace(changed, settings={**changed.settings, "calibration": str(path)})
    return changed


@functools.cache
def _base(overrides: tuple[str, ...]) -> str:
    """Return the name or path of the calibration that a run of these overrides has."""
    tree = resolved(composed(overrides)[0])
    if tree["calibration"] is not None:
        return str(tree["calibration"])
    engine = f"-{tree['engine']}" if tree["engine"] else ""
    return f"{tree['gpu']['name']}-{tree['model']['name']}-tp{tree['replica']['tp']}{engine}"


@functools.cache
def _text(base: str) -> str:
    path = Path(base) if base.endswith(".yaml") else CALIBRATIONS / f"{base}.yaml"
    if not path.exists():
        raise InputError(
            f"calibration {base} has no file of its own, so that no coefficient of it can be changed"
        )
    return path.read_text(encoding="utf-8")


def _calibration(base: str, coefficients: Mapping[str, tuple[float, float]]) -> Path:
    """Return the file of a calibration with other coefficients, which is written where runs are kept."""
    tree = yaml.safe_load(_text(base))
    changed = []
    for path, (factor, more) in sorted(coefficients.items()):
        *names, last = path.split(".")
        node = tree
        for name in names:
            node = node.get(name, {})
        if last not in node:
            continue  # a calibration without it has nothing to change, as one without CPU cores' LoRA
        node[last] = float(f"{node[last] * factor + more:.6g}")
        changed.append(path)
    provenance = tree["provenance"] | {
        "kind": "derived",
        "source": f"{Path(base).stem} under other conditions",
    }
    tree["provenance"] = provenance | {
        "coefficients": provenance.get("coefficients", {}) | {path: derived("assumed") for path in changed}
    }
    text = yaml.safe_dump(tree, sort_keys=False, width=110)
    file = cache_dir() / "conditions" / f"{hashlib.sha256(text.encode()).hexdigest()[:16]}.yaml"
    if not file.exists():
        file.parent.mkdir(parents=True, exist_ok=True)
        save(file, text)
    return file
