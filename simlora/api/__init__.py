"""simlora from Python, for notebooks and scripts."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from simlora.api.running import Interrupted, run
from simlora.results.result import Result

__all__ = ["Interrupted", "Result", "run", "simulate"]


def simulate(overrides: Sequence[str] = (), *, progress: bool = False) -> Result:
    """Simulate `overrides`, written as on the command line: `simulate(["system=slora", "seed=1"])`.

    Writes nothing to disk. Raises InputError, in one sentence, for what cannot be simulated, and Interrupted,
    with what was finished as its `result`, on Ctrl-C.
    """
    from simlora.config.composing import compose
    from simlora.config.mistakes import COMPOSING, in_plain_words
    from simlora.config.setup import prepare

    if isinstance(overrides, str):
        raise TypeError(f"overrides are a list of strings, such as [{overrides!r}]")
    try:
        config, choices = compose(overrides)
    except COMPOSING as error:
        raise in_plain_words(error, overrides) from error
    return run(prepare(config, choices), command=shlex.join(["simlora", *overrides]), progress=progress)
