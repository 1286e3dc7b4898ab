"""A calibration as the YAML file that it is kept in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import yaml


def written(head: Mapping[str, Any], coefficients: Mapping[str, float]) -> str:
    """Return the file: what it is for and where it is from, then coefficients, by dotted name, as they are."""
    tree: dict[str, Any] = dict(head)
    for name, value in coefficients.items():
        *path, leaf = name.split(".")
        node = tree
        for part in path:
            node = node.setdefault(part, {})
        node[leaf] = value
    return yaml.safe_dump(tree, sort_keys=False, width=110)
