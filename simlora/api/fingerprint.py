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
from importlib.util import find_spec
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
    found = hashlib.sha256(json.dumps(dict(versions()), sort_keys=True).encode())
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


def foreign_code(tree: Any) -> set[str]:
    """Return the code that a configuration names, by `_target_`, and that is not simlora's."""
    found: set[str] = set()
    if isinstance(tree, Mapping):
        target = str(tree.get("_target_", "simlora."))
        found |= {target} if not target.startswith("simlora.") else set()
        for value in tree.values():
            found |= foreign_code(value)
    elif isinstance(tree, list):
        for value in tree:
            found |= foreign_code(value)
    return found


def is_foreign(value: str) -> bool:
    """Whether a value may name code that is not simlora's: `my_module.MyScheduler`."""
    parts = value.split(".")
    return len(parts) > 1 and all(map(str.isidentifier, parts)) and parts[0] != "simlora"


def code_files(target: str) -> set[Path]:
    """Return the Python files of the user's module or package that this names, and those beside it that it may import.

    None of a library that is installed, nor of what cannot be found: such a run is refused anyway.
    """
    try:
        spec = find_spec(target.split(".")[0])
    except (ImportError, ValueError):
        return set()
    if (
        spec is None
        or spec.origin is None
        or not spec.origin.endswith(".py")
        or "site-packages" in spec.origin
    ):
        return set()
    folder = Path(spec.origin).parent
    return set(folder.rglob("*.py") if spec.submodule_search_locations else folder.glob("*.py"))
