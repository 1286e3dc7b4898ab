"""What the command says: results on stdout, everything else on stderr, a line each."""

from __future__ import annotations

import os
import sys
from contextlib import suppress

from simlora.core.errors import InputError


def say(sentence: str) -> None:
    """Print one line on stderr, if anybody is there to read it."""
    with suppress(OSError):
        print(f"simlora: {' '.join(sentence.split())}", file=sys.stderr, flush=True)


def show(text: str) -> None:
    """Print on stdout. A reader who has gone (`| head`) is no error; raises InputError for a full disk."""
    try:
        print(text, flush=True)
    except BrokenPipeError:
        read_no_more()
    except OSError as error:
        raise InputError(
            f"cannot print the results: {error.strerror or error}; they are in the run's folder"
        ) from error


def read_no_more() -> None:
    """Print what comes on stdout nowhere: its reader has gone, and Python would complain when it flushes at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
