"""conf/system/simlora.yaml: the composition as a system that anybody can run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import yaml

from experiments.cross_table.slots import POLICIES
from experiments.cross_table.world import System

HEAD = """\
# @package _global_
# What a search over all policy slots found best on workloads of five papers, and what it carries on others:
# docs/composition.md.
# Written by python -m experiments.composition, which finds it again. GPU, model and kernel are not part of it.
"""


def text(system: System) -> str:
    """Return the file."""
    settings = dict(system.settings)
    base = settings.pop("system")
    groups = {key: settings.pop(key) for key in list(settings) if key in POLICIES}
    lines = [HEAD + "defaults:", f"  - {base}"]
    lines += [f"  - override /{group}: {choice}" for group, choice in groups.items()]
    tree = _nested(settings)
    return "\n".join(lines) + "\n" + (yaml.safe_dump(tree, sort_keys=False) if tree else "")


def _nested(settings: Mapping[str, Any]) -> dict[str, Any]:
    tree: dict[str, Any] = {}
    for key, value in settings.items():
        *path, name = key.split(".")
        place = tree
        for part in path:
            place = place.setdefault(part, {})
        place[name] = value
    return tree
