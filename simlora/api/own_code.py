"""Errors that the user's own code raises, such as a policy's: one sentence that names the line in its file."""

from __future__ import annotations

import linecache
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from traceback import walk_tb
from types import FrameType

from simlora.api.fingerprint import ROOT
from simlora.api.inputs import is_foreign
from simlora.core.errors import InputError


class OwnCodeFailed(InputError):
    """The user's own code raised an error during a run, which is this one's `__cause__`."""


def in_a_sentence(error: Exception, own: Iterable[str] = ()) -> Exception:
    """Return the error as it is, or, if the user's own code raised it or is what called, OwnCodeFailed.

    `own` are the dotted names of the user's own policies: what simlora finds wrong with one, by its name, is a sentence
    as well.
    """
    if isinstance(error, InputError):
        return error
    frames = [(frame, line) for frame, line in walk_tb(error.__traceback__) if not _is_library(frame)]
    foreign = [is_foreign(frame.f_code.co_filename) for frame, _ in frames]
    begin = len(foreign)
    while begin and foreign[begin - 1]:
        begin -= 1
    if begin < len(frames):
        called, (frame, line) = frames[begin][0], frames[-1]  # what simlora called, and what that called last
    elif broken := [name for name in own if name.rpartition(".")[2] in str(error)]:
        return OwnCodeFailed(f"{error}; simlora-check {broken[0]} says which rule it breaks")
    elif any(foreign):
        frame, line = frames[len(foreign) - 1 - foreign[::-1].index(True)]
        called = frame
    else:
        return error
    file = frame.f_code.co_filename
    said = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    source = linecache.getline(file, line).strip()
    return OwnCodeFailed(f"{_name(called)} raised {said}; {file}, line {line}: {source}")


@contextmanager
def failing_in_a_sentence(own: Iterable[str] = ()) -> Iterator[None]:
    """Raise errors of what runs inside as `in_a_sentence` says them; of the policies in `own` some may be simlora's."""
    try:
        yield
    except Exception as error:
        told = in_a_sentence(error, [name for name in own if not name.startswith("simlora.")])
        if told is error:
            raise
        raise told from error


def _is_library(frame: FrameType) -> bool:
    """Whether a frame is neither the user's nor simlora's."""
    file = frame.f_code.co_filename
    return not is_foreign(file) and Path(file).is_absolute() and ROOT not in Path(file).resolve().parents


def _name(frame: FrameType) -> str:
    """Return `module.Class.method`, with the class that was made, which may have inherited the method."""
    code = frame.f_code
    module = frame.f_globals.get("__name__", "")
    made = frame.f_locals.get("self")
    return (
        f"{module}.{code.co_qualname}" if made is None else f"{module}.{type(made).__name__}.{code.co_name}"
    )
