"""Errors that the user's own code raises, such as a policy's: one sentence that names the line in its file."""

from __future__ import annotations

import linecache
from traceback import walk_tb
from types import FrameType

from simlora.api.inputs import is_foreign
from simlora.core.errors import InputError


class OwnCodeFailed(InputError):
    """The user's own code raised an error during a run, which is this one's `__cause__`."""


def in_a_sentence(error: Exception) -> Exception:
    """Return the error as it is, or, if the user's own code raised it or is what called, OwnCodeFailed."""
    own = [
        (frame, line) for frame, line in walk_tb(error.__traceback__) if is_foreign(frame.f_code.co_filename)
    ]
    if not own:
        return error
    frame, line = own[-1]
    file = frame.f_code.co_filename
    said = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    source = linecache.getline(file, line).strip()
    return OwnCodeFailed(f"{_name(frame)} raised {said}; {file}, line {line}: {source}")


def _name(frame: FrameType) -> str:
    """Return `module.Class.method`, with the class that was made, which may have inherited the method."""
    code = frame.f_code
    module = frame.f_globals.get("__name__", "")
    made = frame.f_locals.get("self")
    return (
        f"{module}.{code.co_qualname}" if made is None else f"{module}.{type(made).__name__}.{code.co_name}"
    )
