"""conf/system/simlora.yaml: the composition as a system that anybody can run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from omegaconf import OmegaConf

from experiments.cross_table.slots import POLICIES, ordinary
from experiments.cross_table.world import System

HEAD = """\
# @package _global_
# What a search over all policy slots found best on workloads of five papers, and what it carries on others:
# docs/composition.md.
# Written by python -m experiments.composition, which finds it again, on this GPU and model.
"""


def text(system: System, same: Mapping[str, Any]) -> str:
    """Return the file. Of what is the `same` for all systems that it was held against it has the GPU and the model."""
    settings = dict(system.settings)
    base = settings.pop("system")
    hardware = {key: same[key] for key in ("gpu", "model") if key in same}
    groups = {key: settings.pop(key) for key in list(settings) if key in POLICIES}
    for slot, choice in groups.items():  # what a policy's own file says is not said again
        usual = {f"{slot}.{key}": value for key, value in ordinary(slot, choice).items()}
        settings = {key: value for key, value in settings.items() if key not in usual or usual[key] != value}
    lines = [HEAD + "defaults:", f"  - {base}"]
    lines += [f"  - override /{group}: {choice}" for group, choice in {**hardware, **groups}.items()]
    tree = OmegaConf.create({})
    for key, value in settings.items():
        OmegaConf.update(tree, key, value)
    return "\n".join(lines) + "\n" + (OmegaConf.to_yaml(tree) if settings else "")
