"""Files and their paths: a file appears under its name only when it is complete."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from simlora.core.checks import shown
from simlora.core.errors import InputError


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """Yield a temporary path to write; on success the file replaces `path`, on an error it is removed.

    The folder has to exist. If two processes write the same file, the result is one of theirs. Raises OSError.
    """
    folder = Path(tempfile.mkdtemp(prefix=".writing-", dir=path.parent))
    try:
        draft = folder / path.name
        yield draft
        os.replace(draft, path)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def expanded(path: str | Path) -> Path:
    """Return a path with its `~` replaced. Raises InputError if no file can have it: too long, or of no user."""
    try:
        found = Path(path).expanduser()
        found.exists()
    except (OSError, RuntimeError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise InputError(f"{shown(str(path))} cannot be used as a path: {why}") from None
    return found
