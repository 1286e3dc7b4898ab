"""What the command says: results on stdout, everything else on stderr, a line each."""

from __future__ import annotations

import os
import sys
from contextlib import suppress

from simlora.core.errors import InputError


def say(sentence: str) -> None:
    """Print one line on stderr, if it is open."""
    with suppress(OSError):
        print(f"simlora: {' '.join(sentence.split())}", file=sys.stderr, flush=True)


def show(text: str, end: str = "\n") -> None:
    """Print on stdout. A closed pipe (`| head`) is no error; raises InputError for a full disk."""
    try:
        print(text, end=end, flush=True)
    except BrokenPipeError:
        read_no_more()
    except OSError as error:
        raise unprintable(error) from error


def unprintable(error: OSError) -> InputError:
    """Return the sentence for a stdout that cannot be written; what is left to print is printed nowhere."""
    read_no_more()
    why = error.strerror or error
    return InputError(f"cannot print on standard output: {why}; must be a file, pipe or terminal with room")


def read_no_more() -> None:
    """Print what comes on stdout nowhere: it cannot be written, and Python would complain when it flushes at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
