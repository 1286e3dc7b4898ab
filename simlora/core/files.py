"""Atomic writing of files: a file appears under its name only when it is complete."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


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
