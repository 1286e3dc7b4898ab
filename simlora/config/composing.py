"""Composes simlora's configuration from overrides, without running anything."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from hydra import compose as hydra_compose
from hydra import initialize_config_dir
from omegaconf import DictConfig

FOLDER = Path(__file__).resolve().parents[1] / "conf"
NAME = "config"
VERSION_BASE = "1.3"


def compose(overrides: Sequence[str]) -> DictConfig:
    """Return the configuration, Hydra's own section included. Raises what Hydra raises."""
    with initialize_config_dir(str(FOLDER), job_name="simlora", version_base=VERSION_BASE):
        return hydra_compose(NAME, overrides=list(overrides), return_hydra_config=True)


def groups() -> list[str]:
    """Return the groups that a choice can be made in: `gpu`, `workload/popularity`."""
    return sorted(path.relative_to(FOLDER).as_posix() for path in FOLDER.rglob("*") if path.is_dir())


def choices(group: str) -> list[str]:
    """Return the names that can be chosen in a group."""
    return sorted(path.stem for path in (FOLDER / group).glob("*.yaml"))
