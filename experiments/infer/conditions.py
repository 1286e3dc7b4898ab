"""Runs under conditions, and how far their numbers are from published ones, in one measure for all claims.

A number is compared by t(v) = asinh(10 v / published). For two numbers of one sign that are not small beside the
published one, the difference of their t is the logarithm of their ratio. Below a tenth of the published number t
becomes linear, so that increases and reductions of 0 and below have a place: 0 counts as a factor of 20.
"""

from __future__ import annotations

import functools
import hashlib
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from experiments.claims.claim import Claim
from experiments.claims.evaluate import Outcomes, judge
from experiments.claims.verdicts import HOLDS_WITHIN, NOT_SIMULATED
from experiments.infer.unknowns import Setting, Unknowns
from experiments.studies.points import Point
from simlora.api.cache import cache_dir
from simlora.api.preparing import composed
from simlora.calibrate.calibration_file import CALIBRATIONS, derived, save
from simlora.config.setup import resolved
from simlora.core import libm
from simlora.core.arrays import Floats
from simlora.core.errors import InputError

LINEAR = 10.0
TARGET = math.asinh(LINEAR)
"""t of the published number."""
HOLDS = math.asinh(LINEAR * (1 + HOLDS_WITHIN)) - TARGET
"""Difference of t up to which a number holds."""


def t(simulated: Sequence[float], published: Sequence[float]) -> Floats:
    """Return t of simulated numbers `[numbers]`."""
    of_published = np.asarray(simulated, dtype=float) / np.asarray(published, dtype=float)
    return np.arcsinh(LINEAR * of_published)


def shares(differences: Floats) -> Floats:
    """Return simulated numbers over published ones, of differences of t from TARGET."""
    return np.sinh(TARGET + differences) / LINEAR


def factor(differences: Floats) -> Floats:
    """Return error factors, each 1 or more, of differences of t from TARGET."""
    return libm.exp(np.abs(differences))


def published(claim: Claim) -> list[float]:
    """Return the numbers that a claim publishes. Raises InputError for a claim without any that could be compared."""
    try:
        numbers = [float(value) for value in claim.published]
    except ValueError:
        numbers = []
    if not numbers or 0.0 in numbers or claim.kind not in ("value", "ratio", "increase"):
        raise InputError(
            f"claim {claim.id} has no number that could be compared, and cannot be fitted or judged"
        )
    return numbers


def simulated(claim: Claim, outcomes: Outcomes) -> list[float] | None:
    """Return what is simulated for each of the numbers that a claim publishes; None where a run does not fit.

    Of a ratio at several points that is published once it is the mean ratio; of one "up to" the largest. Raises
    InputError where a run cannot be simulated for another reason, such as a key that its configuration does not have.
    """
    found = judge(claim, outcomes)
    if found.verdict == NOT_SIMULATED:
        raise InputError(f"claim {claim.id} cannot be simulated: {found.why}")
    if found.errors is None:
        return None
    numbers = published(claim)
    per = len(found.errors) // len(numbers)
    groups = [found.errors[index * per : (index + 1) * per] for index in range(len(numbers))]
    return [number * (1 + math.fsum(errors) / per) for number, errors in zip(numbers, groups, strict=True)]


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
        base = _base(tuple(o for o in changed.overrides if not o.startswith(IRRELEVANT)))
        path = _calibration(base, tuple(sorted(coefficients.items())), cache_dir())
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


@functools.lru_cache(maxsize=256)
def _calibration(base: str, coefficients: Sequence[tuple[str, tuple[float, float]]], kept: Path) -> Path:
    """Return the file of a calibration with other coefficients, which is written where runs are kept.

    All runs of a setting ask for few of them, and YAML takes 40 ms.
    """
    tree = yaml.safe_load(_text(base))
    changed = []
    for path, (factor, more) in coefficients:
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
    file = kept / "conditions" / f"{hashlib.sha256(text.encode()).hexdigest()[:16]}.yaml"
    if not file.exists():
        file.parent.mkdir(parents=True, exist_ok=True)
        save(file, text)
    return file
