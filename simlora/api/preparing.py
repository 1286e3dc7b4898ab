"""From overrides, or from a configuration, to a run that is ready."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace

from omegaconf import DictConfig

from simlora.api.inputs import Inputs, files_of, with_code
from simlora.api.operating_points import filled
from simlora.api.own_code import failing_in_a_sentence
from simlora.api.running import run
from simlora.config.changed import changed
from simlora.config.composing import compose
from simlora.config.mistakes import COMPOSING, in_plain_words
from simlora.config.own_folder import files
from simlora.config.setup import Setup, prepare, resolved
from simlora.core.garbage import without_collecting
from simlora.results.result import Result


@without_collecting()
def ready(config: DictConfig, choices: Mapping[str, str], overrides: Sequence[str] = ()) -> Setup:
    """Build everything that a configuration describes; what it leaves to be measured by simulating is found first.

    Of `overrides` only the user's own folder of configurations counts, where the system may be from.
    Raises InputError for the first thing wrong.
    """
    with failing_in_a_sentence():
        complete, notices = filled(config, choices)
        setup = prepare(complete, choices)
    about = {**setup.about, "changed": changed(config, choices, overrides)}
    return replace(setup, about=about, notices=(*notices, *setup.notices))


@without_collecting()
def composed(overrides: Sequence[str]) -> tuple[DictConfig, dict[str, str]]:
    """Return the configuration that these overrides describe, and the name chosen in each group.

    Raises InputError for a mistake in them.
    """
    if isinstance(overrides, str):
        raise TypeError(f"overrides are a list of strings, such as [{overrides!r}]")
    try:
        return compose(overrides)
    except COMPOSING as error:
        raise in_plain_words(error, overrides) from error


def simulated(overrides: Sequence[str]) -> tuple[Result, Inputs]:
    """Simulate these overrides; return the result and what was read for it. Raises as `simlora.simulate` does."""
    own = files_of([str(path) for path in files(overrides)])
    config, choices = composed(overrides)
    tree = resolved(config)
    read = files_of(tree)
    read = replace(read, files={**own.files, **read.files})
    result = run(ready(config, choices, overrides), command=shlex.join(["simlora", *overrides]))
    return result, with_code(read, tree)
