"""A folder of the user's own configurations: DIR/router/mine.yaml makes router=mine a choice beside simlora's."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from simlora.core.checks import shown
from simlora.core.errors import InputError
from simlora.core.files import expanded
from simlora.latency.yaml_text import read_yaml

KEY = "hydra.searchpath"
SCHEME = "file://"


def own_folder(folder: str | Path) -> str:
    """Return the override that adds a folder, as every run carries it. Raises InputError if it is not there."""
    path = existing(folder)
    if any(character in str(path) for character in ",[]'\"\\"):
        raise InputError(
            f"--config-dir {folder} has one of , [ ] ' \" \\ in its path, which Hydra cannot read there"
        )
    return f"{KEY}=['{SCHEME}{path}']"


def existing(folder: str | Path) -> Path:
    """Return where a folder is, its `~` replaced. Raises InputError if it is not there."""
    path = expanded(folder).absolute()
    if not path.is_dir():
        raise InputError(
            f"--config-dir {shown(str(folder))} is no folder; DIR/router/mine.yaml makes router=mine a choice"
        )
    return path


def with_folder(overrides: Sequence[str], folder: str | Path | None) -> Sequence[str]:
    """Return overrides with a folder, if one is given."""
    return overrides if folder is None else [own_folder(folder), *overrides]


def files(overrides: Iterable[str]) -> list[Path]:
    """Return the YAML files of the folders that these overrides add, in one order."""
    found = []
    for override in overrides:
        key, _, value = override.partition("=")
        if key.lstrip("+") == KEY:
            places = read_yaml(value, KEY)
            for place in places if isinstance(places, list) else [places]:
                if str(place).startswith(SCHEME):
                    found += sorted(Path(str(place).removeprefix(SCHEME)).rglob("*.yaml"))
    return found


def own_choices(group: str, overrides: Iterable[str]) -> list[str]:
    """Return the names that the folders which these overrides add have of a group, such as `gpu`."""
    return [path.stem for path in files(overrides) if path.parent.name == group]
