"""Reads typed values out of a configuration tree of plain dicts and lists."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from omegaconf import DictConfig, OmegaConf

from simlora.config.names import close_keys
from simlora.core.checks import shown
from simlora.core.errors import InputError

Tree = Mapping[str, Any]

CHOSEN = {"decode_router": "router@decode_router"}
"""What a choice is written with where that is not its section's name."""


def section(tree: Tree, key: str, known: Sequence[str] | None = None) -> dict[str, Any]:
    """Return the keys below `key`. Raises InputError if there are none, or one that is not `known`.

    Without `known`, the section is a group's, and what may be in it depends on the choice.
    """
    found = tree.get(key)
    names = [f"{key}.{name}" for name in known or ()]
    if not isinstance(found, Mapping):
        must = (
            f"have keys such as {names[0]}=<value>"
            if names
            else f"be chosen with {CHOSEN.get(key, key)}=<name>"
        )
        raise InputError(f"{key} is {shown(found)}, must {must}")
    if names:
        check_known(found, known or (), f"{key}.")
    return dict(found)


def check_known(tree: Tree, known: Iterable[str], prefix: str = "") -> None:
    """Raise InputError for the first key that nothing would read."""
    known = list(known)
    for key in tree:
        if key not in known:
            hint = close_keys(f"{prefix}{key}", [f"{prefix}{name}" for name in known])
            raise InputError(f"there is no key {prefix}{key}; {hint}")


def plain(config: DictConfig, resolve: bool, complete: bool = False) -> dict[str, Any]:
    """Return a configuration as dicts and lists, its ${...} resolved or as they are written.

    Raises what OmegaConf raises where one cannot be resolved, and with `complete` where a value is not set.
    """
    tree = OmegaConf.to_container(config, resolve=resolve, throw_on_missing=complete)
    assert isinstance(tree, dict)
    return {str(key): value for key, value in tree.items()}


def as_whole(value: Any) -> Any:
    """Return 2e4 as 20000, and everything else as it is, to be checked where it is taken."""
    return int(value) if isinstance(value, float) and value.is_integer() else value
