"""Keeps the figures of rows, so that a row is simulated once and an interrupted command goes on where it was."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from simlora.api.cache import open_cache
from simlora.api.fingerprint import source

Figures = TypeVar("Figures", dict[str, float], dict[str, list[float]])


def kept(question: Any, simulate: Callable[[], Figures]) -> Figures:
    """Return the figures that are kept under a `question` of plain values, or simulate and keep them.

    The question says all that they depend on but simlora's own files, whose hash the cache adds.
    """
    cache = open_cache()
    path = cache.named(["fidelity", question])
    found: Figures | None = cache.read(path, "question", question, "figures")
    if found is None:
        found = simulate()
        if (
            source() == cache.source
        ):  # or files have changed while it ran, and whose figures they are is not known
            cache.write(path, {"question": question, "figures": found})
    return found


def hashed(*files: str | Path) -> str:
    """Return the hash of files that figures depend on, as part of a question."""
    found = hashlib.sha256()
    for file in files:
        found.update(hashlib.sha256(Path(file).read_bytes()).digest())
    return found.hexdigest()[:16]
