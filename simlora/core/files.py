"""Files that appear under their names only when they are whole."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """Give a draft to be written; it takes the place of `path` if all goes well, and is removed if not.

    The folder has to be there. Of two processes that write the same file, one's stays. Raises OSError.
    """
    folder = Path(tempfile.mkdtemp(prefix=".writing-", dir=path.parent))
    try:
        draft = folder / path.name
        yield draft
        os.replace(draft, path)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
