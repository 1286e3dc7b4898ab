"""Compiles simlora's hot rooms with mypyc, in the source tree: Hatchling's build hook, off unless it is asked for.

HATCH_BUILD_HOOK_ENABLE_CUSTOM=true turns it on; `make compiled` does that. Each room becomes a library of its own;
they are compiled in parallel, on all cores, each in less than 1 GB. What is compiled already is not compiled again.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Iterator
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PACKAGE = "simlora"
MANIFEST = Path(PACKAGE, "compiled.json")
# mypyc reads the types of what it compiles, and of what that imports from simlora, librt and numpy.
TYPES = f"""
[mypy]
follow_imports = skip
ignore_missing_imports = True
disable_error_code = type-abstract
[mypy-librt.*,numpy.*,{PACKAGE}.core.*,{PACKAGE}.hardware.*,{PACKAGE}.latency.*,{PACKAGE}.memory.*,{PACKAGE}.metrics.*]
follow_imports = normal
[mypy-{PACKAGE}.engine.*,{PACKAGE}.policies.*,{PACKAGE}.serving.*,{PACKAGE}.workload.*]
follow_imports = normal
"""
# Functions call each other, and Python's, without a detour over a table.
FLAGS = ["-fvisibility=hidden", "-fno-plt"] if sys.platform == "linux" else []


class CustomBuildHook(BuildHookInterface):  # type: ignore[type-arg]
    """Compiles the `rooms`, less what is to stay `interpreted`, and adds what was compiled to the wheel."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile beside the sources, where an editable install finds it too."""
        os.chdir(self.root)
        sources = list(_sources(self.config["rooms"], self.config["interpreted"]))
        if not _compiled(sources):
            clean()
            _compile(sources)
            MANIFEST.write_text(json.dumps(_manifest(sources), indent=1) + "\n", encoding="utf-8")
        build_data["pure_python"] = False
        build_data["infer_tag"] = True
        build_data["artifacts"] += [f"{PACKAGE}/**/*{EXTENSION_SUFFIXES[0]}", MANIFEST.as_posix()]


def clean() -> None:
    """Remove what was compiled; the manifest first, as without it nothing counts as compiled."""
    MANIFEST.unlink(missing_ok=True)
    for suffix in (".so", ".pyd"):
        for library in Path(PACKAGE).rglob(f"*{suffix}"):
            library.unlink()


def _sources(rooms: Iterable[str], interpreted: Iterable[str]) -> Iterator[Path]:
    left_out = {path for pattern in interpreted for path in Path(PACKAGE).glob(pattern)}
    for room in rooms:
        yield from (path for path in sorted(Path(PACKAGE, room).rglob("*.py")) if path not in left_out)


def _manifest(sources: Iterable[Path]) -> dict[str, Any]:
    sys.path.insert(0, ".")
    try:
        from simlora.core.build import hash_of
    finally:
        del sys.path[0]
    names = [path.as_posix() for path in sources]
    return {
        "suffix": EXTENSION_SUFFIXES[0],
        "flags": FLAGS,
        "hash": hash_of(names, Path()),
        "sources": names,
    }


def _compiled(sources: Iterable[Path]) -> bool:
    return MANIFEST.exists() and json.loads(MANIFEST.read_text(encoding="utf-8")) == _manifest(sources)


def _compile(sources: Iterable[Path]) -> None:
    from setuptools import Distribution  # before mypyc, which looks whether it is there

    from mypyc.build import mypycify  # isort: skip

    rooms: dict[str, list[str]] = {}
    for path in sources:
        rooms.setdefault(path.parts[1], []).append(str(path))
    with TemporaryDirectory() as folder:
        types = Path(folder, "mypy.ini")
        types.write_text(TYPES, encoding="utf-8")
        modules = mypycify(
            [f"--config-file={types}", f"--cache-dir={folder}/cache", *map(str, sources)],
            separate=[(files, f"{PACKAGE}.{room}") for room, files in rooms.items()],
            opt_level="2",
            debug_level="1",
            target_dir=f"{folder}/c",
        )
        for module in modules:
            module.extra_compile_args = [*module.extra_compile_args, *FLAGS]  # mypyc has one list for all
        command = Distribution({"name": PACKAGE, "ext_modules": modules}).get_command_obj("build_ext")
        command.inplace, command.parallel, command.build_temp = True, os.cpu_count(), f"{folder}/objects"
        command.ensure_finalized()
        command.run()


if __name__ == "__main__":
    if sys.argv[1:] != ["clean"]:
        sys.exit("hatch_build.py: error: say what to do: clean")
    clean()
