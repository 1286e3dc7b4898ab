"""simlora from Python, for notebooks and scripts."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

from simlora.api.running import Interrupted, run
from simlora.results.result import Result

__all__ = ["Interrupted", "Result", "run", "simulate"]


def simulate(
    overrides: Sequence[str] = (), *, config_dir: str | Path | None = None, progress: bool = False
) -> Result:
    """Simulate `overrides`, written as on the command line: `simulate(["system=slora", "seed=1"])`.

    `config_dir` is a folder of your own configurations: `router/mine.yaml` in it makes `router=mine` a choice.
    Writes nothing to disk, but keeps operating points that it has to find (SIMLORA_CACHE_DIR). Raises InputError, in
    one sentence, for what cannot be simulated, and Interrupted, with what was finished as its `result`, on Ctrl-C.
    """
    from simlora.api.preparing import composed, ready
    from simlora.config.own_folder import with_folder

    overrides = with_folder(overrides, config_dir)
    config, choices = composed(overrides)
    return run(
        ready(config, choices, overrides), command=shlex.join(["simlora", *overrides]), progress=progress
    )
