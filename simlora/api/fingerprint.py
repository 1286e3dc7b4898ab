"""What a simulated result depends on besides its overrides: simlora's own files, libraries, files that are named.

A run's configuration is its overrides over simlora's conf/, its latencies are in simlora's calibrations/, and what
it makes of them is simlora's code. So all of these files go into one hash, and a cached run is found again only
while none of them has changed. Left out are the rooms that show results and that no result depends on.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from simlora.api.facts import versions

ROOT = Path(__file__).resolve().parents[1]
SHOWING = ("report", "cli", "results", "sweeps")
SUFFIXES = (".py", ".yaml", ".json", ".csv")


def source(root: Path = ROOT) -> str:
    """Return the hash of simlora's files and of the versions of what it runs on.

    Files are read again only when the time or the size of one has changed: it is asked for with every run.
    """
    return _hashed(root, tuple(sorted(_files(root))))


def _files(root: Path) -> Iterator[tuple[str, int, int]]:
    """Yield path, time in ns and size of every file that results depend on."""
    for folder, inside, names in os.walk(root):
        if Path(folder) == root:
            inside[:] = [name for name in inside if name not in SHOWING]
        for name in names:
            if name.endswith(SUFFIXES):
                path = os.path.join(folder, name)
                stat = os.stat(path)
                yield path, stat.st_mtime_ns, stat.st_size


@lru_cache(maxsize=4)
def _hashed(root: Path, files: tuple[tuple[str, int, int], ...]) -> str:
    found = hashlib.sha256(json.dumps(versions(), sort_keys=True).encode())
    for name, _, _ in files:
        path = Path(name)
        found.update(path.relative_to(root).as_posix().encode())
        found.update(hashlib.sha256(path.read_bytes()).digest())
    return found.hexdigest()[:16]


def named_files(values: Iterable[Any]) -> set[Path]:
    """Return the files that these values, or those within them, name."""
    found: set[Path] = set()
    for value in values:
        if isinstance(value, Mapping):
            found |= named_files(value.values())
        elif isinstance(value, list | tuple):
            found |= named_files(value)
        elif isinstance(value, str) and "\n" not in value and _is_file(value):
            found.add(Path(value).resolve())
    return found


def contents(paths: Iterable[Path]) -> list[list[str]]:
    """Return the path and the hash of every file, in order."""
    return [[str(path), hashlib.sha256(path.read_bytes()).hexdigest()] for path in sorted(paths)]


def _is_file(value: str) -> bool:
    try:
        return Path(value).is_file()
    except (OSError, ValueError):  # too long for a path, or with a null byte
        return False


def foreign_code(tree: Any) -> bool:
    """Whether a configuration names, by `_target_`, code that is not simlora's."""
    if isinstance(tree, Mapping):
        target = tree.get("_target_", "simlora.")
        return not str(target).startswith("simlora.") or any(map(foreign_code, tree.values()))
    return isinstance(tree, list) and any(map(foreign_code, tree))
