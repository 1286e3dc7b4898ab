"""The run's folder: a run that fails leaves none behind that it made."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from hydra.experimental.callback import Callback
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

_made: list[Path] = []
HYDRAS_OWN = "multirun.yaml"
"""Hydra writes it into the folder of a sweep before the first simulation."""


class Watch(Callback):
    """Looks, before Hydra makes a folder, which parts of its path are not there yet."""

    def on_run_start(self, config: DictConfig, **kwargs: Any) -> None:
        """Before the folder of a single run is made."""
        _note(config, "hydra.run.dir")

    def on_multirun_start(self, config: DictConfig, **kwargs: Any) -> None:
        """Before the folder of a sweep is made."""
        _note(config, "hydra.sweep.dir")


def _note(config: DictConfig, key: str) -> None:
    try:
        folder = Path(str(OmegaConf.select(config, key))).absolute()
    except OmegaConfBaseException:
        return  # Hydra is about to say so itself
    missing = [path for path in (folder, *folder.parents) if not os.path.lexists(path)]
    _made.extend(missing[-1:])


def forget() -> None:
    """Start anew."""
    _made.clear()


def clean() -> None:
    """Remove every folder that this run made and that holds no results."""
    for top in _made:
        for place, _, _ in os.walk(top, topdown=False):
            if set(os.listdir(place)) <= {HYDRAS_OWN}:
                Path(place, HYDRAS_OWN).unlink(missing_ok=True)
                os.rmdir(place)
    forget()
