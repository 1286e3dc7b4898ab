"""Where coefficients of a paper's calibrations are from: its folder's provenance.yaml, with its places filled."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from experiments.studies.reading import load

KINDS = ("derived", "published", "measured")


def provenance(folder: Path, part: str, **values: Any) -> dict[str, Any]:
    """Return a part of the sheet; `{derived: text}` says of what kind a coefficient is, and from what."""
    found = _filled(load(folder / "provenance.yaml")[part], values)
    assert isinstance(found, dict)
    return found


def _filled(tree: Any, values: dict[str, Any]) -> Any:
    if isinstance(tree, dict) and len(tree) == 1 and next(iter(tree)) in KINDS:
        ((kind, source),) = tree.items()
        return {"kind": kind, "source": source.format(**values)}
    if isinstance(tree, dict):
        return {key: _filled(value, values) for key, value in tree.items()}
    return tree.format(**values) if isinstance(tree, str) else tree
