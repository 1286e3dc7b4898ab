"""What a run reads besides simlora's own files: files that its configuration names, and code of the user's.

The hash of a file is taken before it is read: of a module when it is imported, whenever that is after simlora was.
"""

from __future__ import annotations

import hashlib
import os
import re
import site
import sys
import sysconfig
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

from simlora.api.fingerprint import ROOT

_DOTTED = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+")
_imported: dict[str, str] = {}
"""The hash that the file of a module had when it was imported."""


@dataclass(frozen=True)
class Inputs:
    """The hash of each file that a run has read, and where each of the user's modules that it names is found.

    `unknown` says which code has no file, "" if all has one. `named` are the files that the configuration names.
    """

    files: Mapping[str, str]
    modules: Mapping[str, str]
    unknown: str = ""
    named: frozenset[str] = frozenset()

    @property
    def doubt(self) -> str:
        """Why a run of these inputs cannot be told from others: they are not what they were; "" if they are."""
        if self.unknown:
            return f"the code of {self.unknown} is in no file"
        for path, before in self.files.items():
            if hash_of(path) != before:
                return f"{path} has changed since it was read"
        for name, path in self.modules.items():
            if place_of(name) != path:
                return f"the module {name} is no longer {path}"
        return ""


def files_of(tree: Any) -> Inputs:
    """Return the files that a configuration names; called before they are read."""
    found = {str(path): hash_of(path) for path in sorted(named_files([tree]))}
    return Inputs(found, {}, named=frozenset(found))


def with_code(read: Inputs, tree: Any) -> Inputs:
    """Return what a run has read, with the code that it ran, if its configuration names code of the user's.

    That is all that this process has imported and that is neither simlora's nor a library's. Files that such code opens
    by itself are not among them.
    """
    places = foreign_code([tree])
    if not places:
        return read
    paths = {*_foreign_modules(), *_modules_of(places)}
    code = {path: _imported.setdefault(path, hash_of(path)) for path in sorted(paths)}
    unknown = "__main__" if "__main__" in places else ""
    return replace(read, files={**read.files, **code}, modules=places, unknown=unknown)


def named_files(values: Iterable[Any]) -> set[Path]:
    """Return the files that these values, or those within them, name."""
    found: set[Path] = set()
    for value in strings(values):
        if "\n" not in value and (path := _file(value)) is not None:
            found.add(path)
    return found


def foreign_code(values: Iterable[Any]) -> dict[str, str]:
    """Return the modules and packages of the user's that these values name, by their first name, and their files.

    One that is named counts even where libraries are installed: an installed package of policies is the user's.
    """
    named = {name.partition(".")[0] for value in strings(values) for name in _DOTTED.findall(value)}
    places = {name: place_of(name) for name in sorted(named)}
    return {name: path for name, path in places.items() if name == "__main__" or _is_named(path)}


def strings(values: Iterable[Any]) -> Iterator[str]:
    """Yield the strings among these values and within them."""
    for value in values:
        if isinstance(value, str):
            yield value
        elif isinstance(value, Mapping):
            yield from strings(value.values())
        elif isinstance(value, list | tuple):
            yield from strings(value)


def hash_of(path: str | Path) -> str:
    """Return the hash of a file, "" if it cannot be read."""
    try:
        return hashlib.sha256(Path(path).read_bytes()).hexdigest()
    except OSError:
        return ""


def place_of(name: str) -> str:
    """Return the file of a module or package of this first name, or the folder of one without; "" if there is none."""
    try:
        spec = find_spec(name)
    except (ImportError, ValueError, AttributeError):  # of a module that was not imported from anywhere
        return ""
    if spec is None:
        return ""
    folders = list(spec.submodule_search_locations or [""])
    return str(spec.origin) if spec.has_location else str(folders[0])


def _file(value: str) -> Path | None:
    try:
        path = Path(value).expanduser()
        return path.resolve() if path.is_file() else None
    except (OSError, ValueError, RuntimeError):  # too long, with a null byte, or of an unknown user
        return None


def _foreign_modules() -> list[str]:
    """Return the files of the modules of this process that are the user's."""
    specs = [getattr(module, "__spec__", None) for module in list(sys.modules.values())]
    found = {str(spec.origin) for spec in specs if isinstance(spec, ModuleSpec) and spec.has_location}
    return sorted(filter(is_foreign, found))


def _modules_of(packages: Iterable[str]) -> list[str]:
    """Return the files of the modules of this process that belong to these packages, by their first name."""
    named = [module for name, module in list(sys.modules.items()) if name.partition(".")[0] in packages]
    specs = [getattr(module, "__spec__", None) for module in named]
    return [str(spec.origin) for spec in specs if isinstance(spec, ModuleSpec) and spec.has_location]


@cache
def _is_named(path: str) -> bool:
    """Whether a file of code that a configuration names is neither simlora's nor Python's."""
    if is_foreign(path):
        return True
    return bool(path) and _below(path, _libraries()[2:]) and ROOT not in Path(path).resolve().parents


@cache
def is_foreign(path: str) -> bool:
    """Whether a file of code is neither simlora's, nor Python's, nor of a library that is installed."""
    if not path or not Path(path).is_absolute():
        return False
    return not _below(path, _libraries()) and ROOT not in Path(path).resolve().parents


def _below(path: str, folders: Iterable[Path]) -> bool:
    """Whether a path is in one of these folders, by their text: it is asked of every module at every start."""
    return str(Path(path)).startswith(tuple(f"{folder}{os.sep}" for folder in folders))


@cache
def _libraries() -> Sequence[Path]:
    kinds = ("stdlib", "platstdlib", "purelib", "platlib")
    places = [sysconfig.get_path(kind) for kind in kinds]
    return [Path(place) for place in (*places, *site.getsitepackages(), site.getusersitepackages())]


class _Watch(MetaPathFinder):
    """Finds modules as the other finders do, and takes the hash of a user's file before it is imported."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return what the first of the other finders finds."""
        if path is not None and not any(is_foreign(f"{place}/x.py") for place in path):
            return None
        for finder in sys.meta_path:
            if finder is not self and (spec := finder.find_spec(name, path, target)) is not None:
                if spec.has_location and is_foreign(str(spec.origin)):
                    _imported[str(spec.origin)] = hash_of(str(spec.origin))
                return spec
        return None


_imported.update({path: hash_of(path) for path in _foreign_modules()})
sys.meta_path.insert(0, _Watch())
