"""Composes simlora's configuration from overrides, without running anything."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from hydra import compose as hydra_compose
from hydra import initialize_config_dir
from omegaconf import DictConfig, OmegaConf

FOLDER = Path(__file__).resolve().parents[1] / "conf"
NAME = "config"
VERSION_BASE = "1.3"


def compose(overrides: Sequence[str]) -> tuple[DictConfig, dict[str, str]]:
    """Return the configuration without Hydra's section, and the name chosen in each group.

    Raises what Hydra raises; `mistakes.in_plain_words` makes a sentence of it.
    """
    with initialize_config_dir(str(FOLDER), job_name="simlora", version_base=VERSION_BASE):
        config = hydra_compose(NAME, overrides=list(overrides), return_hydra_config=True)
    choices = {str(group): str(choice) for group, choice in config.hydra.runtime.choices.items()}
    return OmegaConf.masked_copy(config, [str(key) for key in config if key != "hydra"]), choices


def groups() -> list[str]:
    """Return the groups that a choice can be made in: `gpu`, `workload/popularity`."""
    return sorted(path.relative_to(FOLDER).as_posix() for path in FOLDER.rglob("*") if path.is_dir())


def choices(group: str) -> list[str]:
    """Return the names that can be chosen in a group."""
    return sorted(path.stem for path in (FOLDER / group).glob("*.yaml"))
