"""Reads YAML files whose mistakes are one plain sentence that names the file; and where measurements of others lie."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from simlora.core.errors import InputError, nearest
from simlora.latency.yaml_text import read_yaml


def load(path: Path) -> dict[str, Any]:
    """Return the mapping in a YAML file. Raises InputError for what cannot be read or is no mapping."""
    try:
        tree = read_yaml(path.read_text(encoding="utf-8"), str(path))
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise InputError(f"{path} is not a text file") from None
    if not isinstance(tree, dict):
        raise InputError(f"{path} is not a mapping of keys to values")
    return tree


def check(tree: Any, place: str, required: Iterable[str], optional: Iterable[str] = ()) -> dict[str, Any]:
    """Return `tree` as a dict. Raises InputError unless it has the required keys and no unknown one."""
    if not isinstance(tree, Mapping):
        raise InputError(f"{place} is {tree!r}, must be a mapping of keys to values")
    required = list(required)
    known = [*required, *optional]
    for key in tree:
        if key not in known:
            raise InputError(f"{place} has an unknown key {key}; {nearest(str(key), known)}")
    for key in required:
        if key not in tree:
            raise InputError(f"{place} has no {key}")
    return dict(tree)


def known(name: Any, choices: Iterable[Any], place: str) -> Any:
    """Return `name` if it is one of the choices. Raises InputError with the nearest ones otherwise."""
    choices = list(choices)
    if name not in choices:
        raise InputError(f"{place} is {name!r}; {nearest(str(name), map(str, choices))}")
    return name


def listed(value: Any) -> list[Any]:
    """Return a list of one or more values: `5` and `[5]` mean the same."""
    return list(value) if isinstance(value, list | tuple) else [value]


DEFAULT = Path(__file__).resolve().parents[3] / "shared" / "measured"


def measured_dir() -> Path:
    """Return the folder of measured runs: SIMLORA_MEASURED_DIR, or ../shared/measured beside the project."""
    return Path(os.environ.get("SIMLORA_MEASURED_DIR", DEFAULT))


def measured_file(name: str) -> Path:
    """Return a file of measurements. Raises InputError if it is not there."""
    path = measured_dir() / name
    if not path.exists():
        raise InputError(f"there is no {path}; set SIMLORA_MEASURED_DIR to the folder that has {name}")
    return path
