"""What a simulated result depends on besides its overrides and its inputs: simlora's own files, and libraries.

A run's configuration is its overrides over simlora's conf/, its latencies are in simlora's calibrations/, and what
it makes of them is simlora's code. So all of these files go into one hash, and a cached run is found again only
while none of them has changed. Left out are the rooms that show results or ask for runs: no result depends on them.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path

from simlora.api.facts import versions

ROOT = Path(__file__).resolve().parents[1]
SHOWING = ("report", "cli", "results", "sweeps", "planning", "validation")
CACHED = "__pycache__"
SUFFIXES = (".py", ".yaml", ".json", ".csv")


def source(root: Path = ROOT) -> str:
    """Return the hash of simlora's files and of the versions of what it runs on.

    Files are read again only when the time or the size of one has changed: it is asked for with every run.
    """
    return _hashed(root, tuple(sorted(_files(root))))


def _files(
    folder: str | Path, left_out: Sequence[str] = (CACHED, *SHOWING)
) -> Iterator[tuple[str, int, int]]:
    """Yield path, time in ns and size of every file that results depend on."""
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.endswith(SUFFIXES):
                stat = entry.stat()
                yield entry.path, stat.st_mtime_ns, stat.st_size
            elif entry.name not in left_out and entry.is_dir():
                yield from _files(entry.path, (CACHED,))


@lru_cache(maxsize=4)
def _hashed(root: Path, files: tuple[tuple[str, int, int], ...]) -> str:
    found = hashlib.sha256(json.dumps(dict(versions()), sort_keys=True).encode())
    for name, _, _ in files:
        path = Path(name)
        found.update(path.relative_to(root).as_posix().encode())
        found.update(hashlib.sha256(path.read_bytes()).digest())
    return found.hexdigest()[:16]
