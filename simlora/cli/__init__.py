"""The command line: `simlora [group=choice] [key=value] …`, a Hydra app."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from simlora import BUILD, WHY_INTERPRETED, __version__
from simlora.cli.guarded import guarded, printed


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status; an error of our own keeps its traceback."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if "--version" in arguments:
        return printed(
            f"simlora {__version__}, {BUILD}" + (f" ({WHY_INTERPRETED})" if WHY_INTERPRETED else "")
        )
    return guarded(lambda: _run(arguments), "interrupted; this run leaves no results")


def _run(arguments: list[str]) -> int:
    # Hydra and pandas are most of the start-up, and a --version needs neither.
    from simlora.cli import folder
    from simlora.cli.app import launch
    from simlora.cli.arguments import read

    folder.forget()
    try:
        status = launch(*read(arguments))
    except BaseException:
        folder.clean()
        raise
    if status:
        folder.clean()
    return status
