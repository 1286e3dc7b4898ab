"""Which build of simlora runs: its hot rooms compiled by mypyc, or all of it interpreted."""

from __future__ import annotations

import hashlib
import json
import os
import sys
from importlib.machinery import EXTENSION_SUFFIXES, SOURCE_SUFFIXES, FileFinder, SourceFileLoader
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1]
ROOT = PACKAGE.parent
MANIFEST = PACKAGE / "compiled.json"
"""Written by hatch_build.py: the suffix of the compiled modules, their sources, and the hash of these."""
INTERPRETED = "SIMLORA_INTERPRETED"
"""The environment variable that, if set, leaves the compiled modules alone."""


def hash_of(sources: list[str], root: Path) -> str:
    """Return the hash of source files, given relative to the folder of the package; one may be missing."""
    found = hashlib.sha256()
    for source in sources:
        found.update(source.encode())
        if (root / source).exists():
            found.update((root / source).read_bytes())
    return found.hexdigest()


def why_interpreted() -> str | None:
    """Return why the compiled modules are not used; None: they are."""
    if os.environ.get(INTERPRETED):
        return f"{INTERPRETED} is set"
    try:
        compiled = json.loads(MANIFEST.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return "not compiled"
    if compiled["suffix"] != EXTENSION_SUFFIXES[0]:
        return f"compiled for another Python: {compiled['suffix']}"
    if hash_of(compiled["sources"], ROOT) != compiled["hash"]:
        return "sources have changed since they were compiled"
    return None


def choose() -> str | None:
    """Let Python import the sources instead of compiled modules if these are not to be used; return why.

    A changed source takes effect at once: its compiled modules are left alone until they are compiled again.
    """
    reason = why_interpreted()
    if reason is not None:  # also without a manifest: a build that was broken off leaves modules behind
        sys.path_hooks.insert(0, _sources_only)
        for folder in [folder for folder in sys.path_importer_cache if _below(folder)]:
            del sys.path_importer_cache[folder]
    return reason


def _sources_only(folder: str) -> FileFinder:
    if not _below(folder):
        raise ImportError("not below simlora", path=folder)
    return FileFinder(folder, (SourceFileLoader, SOURCE_SUFFIXES))


def _below(folder: str) -> bool:
    return folder == str(PACKAGE) or folder.startswith(f"{PACKAGE}{os.sep}")


WHY_INTERPRETED = choose()
"""Why the hot rooms are not compiled; None: they are."""
BUILD = "interpreted" if WHY_INTERPRETED else "compiled"
