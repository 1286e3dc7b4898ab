"""The folder that a command writes into."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryFile

from simlora.core.errors import InputError


def made(out: Path, asked: str) -> Path:
    """Return a folder that is there now and can be written; `asked` is how it was typed. Raises InputError if not."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=out):
            pass
    except OSError as error:
        raise InputError(f"{asked} cannot be written: {error.strerror}") from None
    return out
