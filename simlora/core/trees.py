"""Trees of mappings, such as configurations and summaries."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any


def branch(tree: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """Return the mapping of a name in a tree, an empty one where there is none."""
    found = tree.get(name)
    return found if isinstance(found, Mapping) else {}


def leaves(tree: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the dotted name and the value of every non-mapping in a tree, in its order."""
    for name, value in tree.items():
        if isinstance(value, Mapping):
            yield from leaves(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value
