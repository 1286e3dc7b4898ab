"""What goes wrong because of what the user gave us, said in one plain sentence."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class InputError(ValueError):
    """Bad input: one sentence that names the file, row or key and says what would be right.

    The command line prints the sentence and exits with status 2; no traceback.
    """


class DoesNotFit(InputError):
    """The base model is larger than the memory that it is given: out of memory, before anything runs."""


def nearest(name: str, choices: Iterable[str], most: int = 3) -> str:
    """Return `did you mean a, b?` or the full list of choices, for the end of a sentence."""
    known = sorted(choices)
    close = difflib.get_close_matches(name, known, n=most, cutoff=0.5)
    if close:
        return f"did you mean {' or '.join(close)}?"
    return f"choose one of {', '.join(known)}"
