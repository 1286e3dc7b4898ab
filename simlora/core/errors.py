"""Errors caused by user input, each with a one-sentence message."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class InputError(ValueError):
    """Bad input; the message is one sentence that names the file, row or key and says what is allowed.

    The command line prints it and exits with status 2, without a traceback.
    """


class DoesNotFit(InputError):
    """The base model does not fit into its memory; raised before anything runs."""


def nearest(name: str, choices: Iterable[str], most: int = 3) -> str:
    """Return `did you mean a, b?` or the full list of choices, for the end of a sentence."""
    known = sorted(choices)
    close = difflib.get_close_matches(name, known, n=most, cutoff=0.5)
    if close:
        return f"did you mean {' or '.join(close)}?"
    return f"choose one of {', '.join(known)}"


def not_defined(made: object, method: str) -> InputError:
    """Return the error of a method that every subclass has to define, and this one does not."""
    kind = type(made)
    return InputError(f"{kind.__module__}.{kind.__qualname__} has no method {method}, which it must define")
