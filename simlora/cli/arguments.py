"""Takes the command line apart into Hydra's options and our overrides."""

from __future__ import annotations

import io
from collections.abc import Sequence
from contextlib import redirect_stderr

from hydra._internal.utils import get_args_parser

from simlora.config.own_folder import existing
from simlora.core.errors import InputError


def read(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return options and overrides, which may come in any order.

    Raises InputError for an unknown option and for a --config-dir that is no folder.
    """
    arguments = list(arguments)
    complaint = io.StringIO()
    try:
        with redirect_stderr(complaint):
            found = get_args_parser().parse_intermixed_args(arguments)
    except SystemExit:
        raise InputError(_sentence(complaint.getvalue())) from None
    if found.experimental_rerun is not None:
        raise InputError(
            "--experimental-rerun would unpickle a file, which could run code; give the overrides again"
        )
    overrides = list(found.overrides)
    options = list(arguments)
    for override in overrides:
        options.remove(override)
    if (folder := found.config_dir) is not None:
        there = str(existing(folder))
        options = [
            f"{each.removesuffix(folder)}{there}" if each.endswith(folder) else each for each in options
        ]
    return options, overrides


def _sentence(complaint: str) -> str:
    reason = complaint.strip().splitlines()[-1].partition("error: ")[2]
    unknown = reason.removeprefix("unrecognized arguments: ")
    if unknown == reason:
        return f"{reason}; see simlora --help"
    first = unknown.split(" ")[0]
    return f"there is no option {first}; keys are written without dashes, such as seed=1; see simlora --help"
