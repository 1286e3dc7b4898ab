"""Keeps the summaries of runs on disk, each found again only while all it depends on is unchanged."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from simlora.api.fingerprint import code_files, contents, foreign_code, is_foreign, named_files, source
from simlora.core.errors import InputError
from simlora.core.files import whole_file

DEFAULT = Path("outputs") / "cache"
HELP = (
    "Runs are kept in SIMLORA_CACHE_DIR (default: outputs/cache in the current folder) and simulated again only after "
    "simlora's own files have changed."
)


def cache_dir() -> Path:
    """Return where runs are kept: SIMLORA_CACHE_DIR, or outputs/cache in the current folder."""
    return Path(os.environ.get("SIMLORA_CACHE_DIR") or DEFAULT).absolute()


@dataclass(frozen=True)
class Cache:
    """One JSON a run in `folder`, named by the hash of its overrides, the files and code they name and the `source`.

    Files are written under a temporary name and renamed, so that one is whole or not there; one that cannot be
    read counts as not there. Delete the folder whenever you like.
    """

    folder: Path
    source: str

    def path(self, overrides: Sequence[str]) -> Path:
        """Return where the run of these overrides is kept, if it is."""
        values = _values(overrides)
        files = named_files(values).union(*(code_files(value) for value in values if is_foreign(value)))
        return self.named([_settled(overrides), contents(files)])

    def get(self, overrides: Sequence[str]) -> dict[str, Any] | None:
        """Return the kept run of these overrides, None if there is none or it is damaged."""
        kept: dict[str, Any] | None = self.read(self.path(overrides), "overrides", _settled(overrides), "run")
        return kept

    def put(self, overrides: Sequence[str], run: dict[str, Any], config: str) -> bool:
        """Keep a run whose resolved configuration is `config`; return whether it was kept.

        It is not kept if simlora's files changed while it ran, or if its configuration names a file, code or a
        variable that is not part of the name under which it would be found again.
        """
        tree = yaml.safe_load(config)
        values = _values(overrides)
        outside = named_files([tree]) - named_files(values) or foreign_code(tree) - set(values)
        resolved = any(
            "${" in value for value in values
        )  # whose value is not in the name: of the environment, say
        if outside or resolved or source() != self.source:
            return False
        self.write(self.path(overrides), {"overrides": _settled(overrides), "run": run})
        return True

    def named(self, question: Any) -> Path:
        """Return where the answer to a `question` of plain values is kept, if it is."""
        text = json.dumps([self.source, question], sort_keys=True)
        return self.folder / f"{hashlib.sha256(text.encode()).hexdigest()[:32]}.json"

    def read(self, path: Path, key: str, value: Any, wanted: str) -> Any:
        """Return what is kept as `wanted` beside a `key` of this `value`, None if there is none or it is damaged."""
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        whole = isinstance(found, dict) and found.get("source") == self.source
        return found.get(wanted) if whole and found.get(key) == value else None

    def write(self, path: Path, entry: Mapping[str, Any]) -> None:
        """Keep an entry. Raises InputError if the folder cannot be written."""
        try:
            _write(path, json.dumps({"source": self.source, **entry}, allow_nan=False))
        except OSError as error:
            raise InputError(
                f"cannot keep runs in {self.folder}: {error.strerror}; set SIMLORA_CACHE_DIR to a folder that "
                f"can be written"
            ) from None


def open_cache() -> Cache:
    """Return the cache for simlora as it is now."""
    return Cache(cache_dir(), source())


def _settled(overrides: Sequence[str]) -> list[str]:
    """Return overrides in the one order that stands for all that mean the same: theirs, if it matters.

    It does where a key is set twice, or within a mapping that is set too: the last counts.
    """
    pairs = [override.partition("=")[::2] for override in overrides]
    keys = [key.lstrip("+~") for key, _ in pairs]
    mappings = [f"{key.lstrip('+~')}." for key, value in pairs if value.lstrip().startswith("{")]
    matters = len(set(keys)) < len(keys) or any(key.startswith(one) for key in keys for one in mappings)
    return list(overrides) if matters else sorted(overrides)


def _values(overrides: Sequence[str]) -> list[str]:
    return [override.partition("=")[2] for override in overrides]


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with whole_file(path) as draft:
        draft.write_text(text, encoding="utf-8")
