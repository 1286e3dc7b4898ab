"""Keeps the summaries of runs on disk, each found again only while all it depends on is unchanged."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from simlora.api.fingerprint import source
from simlora.api.inputs import Inputs, foreign_code, hash_of, named_files
from simlora.config.own_folder import files
from simlora.core.errors import InputError
from simlora.core.files import expanded, whole_file
from simlora.latency.yaml_text import read_yaml

DEFAULT = Path("outputs") / "cache"
HELP = (
    "Runs are kept in SIMLORA_CACHE_DIR (default: outputs/cache in the current folder) and simulated again only after "
    "simlora's own files have changed."
)


def cache_dir() -> Path:
    """Return where runs are kept: SIMLORA_CACHE_DIR, or outputs/cache in the current folder."""
    return expanded(os.environ.get("SIMLORA_CACHE_DIR") or DEFAULT).absolute()


@dataclass(frozen=True)
class Cache:
    """One JSON a run in `folder`, named by the hash of its overrides, the files that they name and the `source`.

    It says what else the run has read, and is found only while all of that is unchanged. Files are written under a
    temporary name and renamed, so that one is whole or not there; one that cannot be read, or has been edited since it
    was written, as its digest tells, counts as not there. Delete the folder whenever you like.
    """

    folder: Path
    source: str

    def path(self, overrides: Sequence[str], files: Mapping[str, str] | None = None) -> Path:
        """Return where the run of these overrides is kept, with the files that they name as they are now.

        `files`: what `files` has just returned for them, as a long trace takes a while to hash.
        """
        own = self.files(overrides) if files is None else files
        return self.named([settled(overrides), dict(own), foreign_code(_values(overrides))])

    def files(self, overrides: Sequence[str]) -> Mapping[str, str]:
        """Return the files that these overrides name, and their hashes as they are now."""
        return {path: hash_of(path) for path in self.names(overrides)}

    def names(self, overrides: Sequence[str]) -> list[str]:
        """Return the files that these overrides name, in one order."""
        return [str(path) for path in sorted(named_files(_values(overrides)))]

    def get(self, path: Path, overrides: Sequence[str]) -> dict[str, Any] | None:
        """Return the run of these overrides that is kept at `path`, None if there is none or it is damaged."""
        entry = self._entry(path, "overrides", settled(overrides))
        if entry is None or Inputs(**entry["inputs"]).doubt:
            return None
        kept: dict[str, Any] = entry["run"]
        return kept

    def put(self, path: Path, overrides: Sequence[str], run: dict[str, Any], read: Inputs) -> bool:
        """Keep a run that has read `read`; return whether it was kept.

        It is not if its configuration names a file, code or a variable that is not part of the name under which it
        would be found again.
        """
        values = _values(overrides)
        outside = read.named.difference(map(str, named_files(values)))
        outside |= set(read.modules).difference(foreign_code(values))
        resolved = any(
            "${" in override for override in overrides
        )  # whose value is not in the name: of the environment, say
        if outside or resolved:
            return False
        inputs = {"files": dict(read.files), "modules": dict(read.modules)}
        self.write(path, {"overrides": settled(overrides), "inputs": inputs, "run": run})
        return True

    @property
    def doubt(self) -> str:
        """Why a run that ended now may not be one of this `source`; "" if it is."""
        return "" if source() == self.source else "simlora's own files have changed since it began"

    def named(self, question: Any) -> Path:
        """Return where the answer to a `question` of plain values is kept, if it is."""
        text = json.dumps([self.source, question], sort_keys=True)
        return self.folder / f"{_digest(text)}.json"

    def read(self, path: Path, key: str, value: Any, wanted: str) -> Any:
        """Return what is kept as `wanted` beside a `key` of this `value`, None if there is none or it is damaged."""
        return (self._entry(path, key, value) or {}).get(wanted)

    def _entry(self, path: Path, key: str, value: Any) -> dict[str, Any] | None:
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError):
            return None
        if not isinstance(found, dict) or found.pop("digest", None) != _digest(json.dumps(found)):
            return None
        return found if found.get("source") == self.source and found.get(key) == value else None

    def write(self, path: Path, entry: Mapping[str, Any]) -> None:
        """Keep an entry, with a digest of it. Raises InputError if the folder cannot be written."""
        whole = {"source": self.source, **entry}
        digest = _digest(json.dumps(whole, allow_nan=False))
        try:
            _write(path, json.dumps(whole | {"digest": digest}))
        except OSError as error:
            raise InputError(
                f"cannot keep a run as {path}: {error.strerror}; set SIMLORA_CACHE_DIR to a folder that can be written"
            ) from None


def open_cache() -> Cache:
    """Return the cache for simlora as it is now."""
    return Cache(cache_dir(), source())


def settled(overrides: Sequence[str]) -> list[str]:
    """Return overrides in the one order that stands for all that mean the same: theirs, if it matters.

    It does where a key is set twice, or within a mapping that is set too: the last counts.
    """
    pairs = [override.partition("=")[::2] for override in overrides]
    keys = [key.lstrip("+~") for key, _ in pairs]
    mappings = [f"{key.lstrip('+~')}." for key, value in pairs if value.lstrip().startswith("{")]
    matters = len(set(keys)) < len(keys) or any(key.startswith(one) for key in keys for one in mappings)
    return list(overrides) if matters else sorted(overrides)


def _values(overrides: Sequence[str]) -> list[Any]:
    """Return the values of overrides, without quotes, as mappings and lists where they are such.

    After them, the files of the user's own folders of configurations, and what stands in them.
    """
    own = files(overrides)
    values = [_value(override.partition("=")[2]) for override in overrides]
    return [
        *values,
        *map(str, own),
        *(_value(path.read_text(encoding="utf-8", errors="replace")) for path in own),
    ]


@lru_cache(maxsize=4096)  # of the overrides of a sweep most are the same: a tenth of the time of a short run
def _value(written: str) -> Any:
    """Return what is written, which is not to be changed."""
    try:
        return read_yaml(written, "the value")
    except InputError:  # of Hydra's grammar, which is another
        return written


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with whole_file(path) as draft:
        draft.write_text(text, encoding="utf-8")
