"""The command line: `simlora [group=choice] [key=value] …`, a Hydra app."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

from simlora import __version__
from simlora.cli.messages import say
from simlora.core.errors import InputError

DONE, BAD_INPUT, INTERRUPTED = 0, 2, 130


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status; an error of our own keeps its traceback."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if "--version" in arguments:
        print(f"simlora {__version__}")
        return DONE
    try:
        with _at_home(), _stoppable():
            return _run(arguments)
    except InputError as error:
        say(f"error: {error}")
        return BAD_INPUT
    except KeyboardInterrupt:
        say("interrupted; this run leaves no results")
        return INTERRUPTED


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


@contextmanager
def _at_home() -> Iterator[None]:
    """Find the user's own modules in the current folder, as `python -m simlora` does."""
    here = os.getcwd()
    sys.path.append(here)
    try:
        yield
    finally:
        sys.path.remove(here)


@contextmanager
def _stoppable() -> Iterator[None]:
    """Let SIGTERM, as batch systems send it, end a run as Ctrl-C does."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    # SIGINT too: a shell script starts its background jobs with SIGINT ignored.
    before = {number: signal.signal(number, _interrupt) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _interrupt(number: int, frame: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt
