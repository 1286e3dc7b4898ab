"""A paper's calibrations: where their coefficients are from, by its folder's provenance.yaml, and their files."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from experiments.studies.reading import load
from simlora.calibrate.calibration_file import committed, derived, save, text_of, written
from simlora.latency.calibration import Calibration

KINDS = ("derived", "published", "measured")


def provenance(folder: Path, part: str, coefficients: Mapping[str, float], **values: Any) -> dict[str, Any]:
    """Return a part of the sheet, of its entries those of some coefficient.

    `{derived: text}` says of what kind a coefficient is, and from what.
    """
    found = _filled(load(folder / "provenance.yaml")[part], values)
    assert isinstance(found, dict)
    found["coefficients"] = {
        entry: said
        for entry, said in found["coefficients"].items()
        if any(fnmatch(f"{name}.", f"{entry}.*") for name in coefficients)
    }
    return found


def write(folder: Path, made: Iterable[Calibration]) -> list[Calibration]:
    """Write calibrations into a folder; return them as their files have them."""
    return [save(folder / f"{one.path}.yaml", text_of(one)) for one in made]


def _filled(tree: Any, values: dict[str, Any]) -> Any:
    if isinstance(tree, dict) and len(tree) == 1 and next(iter(tree)) in KINDS:
        ((kind, source),) = tree.items()
        return {"kind": kind, "source": source.format(**values)}
    if isinstance(tree, dict):
        return {key: _filled(value, values) for key, value in tree.items()}
    return tree.format(**values) if isinstance(tree, str) else tree


def what_ifs(sheet: Path, folder: Path) -> None:
    """Write the calibrations of a sheet of what-ifs: those that come with simlora, with some coefficients changed."""
    said = load(sheet)
    for stem, entry in said["files"].items():
        tree, changed = committed(entry["of"]), derived(entry["says"])
        for name, value in (entry.get("plus") or entry["set"]).items():
            section, leaf = name.split(".")
            before = tree[section][leaf] if "plus" in entry else 0.0
            tree[section][leaf] = float(f"{before + value:.6g}")
            tree["provenance"]["coefficients"][name] = dict(changed)
        made = {key: said[key] for key in ("command", "date") if key in said}
        tree["provenance"] |= changed | made
        save(folder / f"{stem}.yaml", written(tree, {}))
        print(folder / f"{stem}.yaml")
