"""A calibration as the YAML file that it is kept in."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from simlora.core.errors import InputError
from simlora.core.files import whole_file
from simlora.latency import calibration as calibrations
from simlora.latency.calibration import Calibration

CALIBRATIONS = Path(calibrations.__file__).with_name("calibrations")
"""The folder of those that come with simlora."""


def written(head: Mapping[str, Any], coefficients: Mapping[str, float]) -> str:
    """Return the file: what it is for and where it is from, then coefficients, by dotted name, as they are."""
    return yaml.safe_dump(nested(coefficients, head), sort_keys=False, width=110)


def nested(values: Mapping[str, Any], head: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return a tree of values by dotted name, after what is in `head`."""
    tree: dict[str, Any] = dict(head or {})
    for name, value in values.items():
        *path, leaf = name.split(".")
        node = tree
        for part in path:
            node = node.setdefault(part, {})
        node[leaf] = value
    return tree


def text_of(calibration: Calibration, digits: int = 6) -> str:
    """Return a calibration as its file, its coefficients to so many digits."""
    head = {
        "gpu": calibration.gpu,
        "model": calibration.model,
        "tp": calibration.tp,
        "provenance": dict(calibration.provenance),
    }
    rounded = {name: float(f"{value:.{digits}g}") for name, value in calibration.coefficients.items()}
    return yaml.safe_dump(_whole_keys(nested(rounded, head)), sort_keys=False, width=110)


def _whole_keys(tree: object) -> object:
    """Return the tree with counts, which are texts in dotted names, as the whole numbers that they are."""
    if not isinstance(tree, dict):
        return tree
    return {
        int(key) if isinstance(key, str) and key.isdigit() else key: _whole_keys(value)
        for key, value in tree.items()
    }


def committed(name: str) -> dict[str, Any]:
    """Return what the file of a calibration that comes with simlora holds."""
    tree: dict[str, Any] = yaml.safe_load((CALIBRATIONS / f"{name}.yaml").read_text(encoding="utf-8"))
    return tree


def derived(source: str) -> dict[str, str]:
    """Say from what a coefficient was derived."""
    return {"kind": "derived", "source": source}


def published(source: str) -> dict[str, str]:
    """Say where a coefficient was published."""
    return {"kind": "published", "source": source}


def save(path: Path, text: str) -> Calibration:
    """Check a file with the simulator's own reader, write it, whole or not at all, and return the calibration.

    Raises InputError for what does not read, and where it cannot be written.
    """
    calibration = calibrations.parse(text, str(path))
    try:
        with whole_file(path) as draft:
            draft.write_text(text, encoding="utf-8")
    except OSError as error:
        raise InputError(f"{path} cannot be written: {error.strerror or error}") from None
    return calibration
