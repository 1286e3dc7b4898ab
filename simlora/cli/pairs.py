"""Options that are given several times as NAME=VALUE, such as --limit and --price."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from simlora.core.errors import InputError

Number = TypeVar("Number", int, float)


def pairs(option: str, texts: Sequence[str], such_as: str) -> dict[str, str]:
    """Return values by name. Raises InputError for what is no pair, and for a name that comes twice."""
    found: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not (name and equals and value):
            raise InputError(f"{option} {text!r} must be NAME=VALUE, such as {such_as}")
        if name in found:
            raise InputError(f"{option} is given twice for {name}; give each once")
        found[name] = value
    return found


def numbers(option: str, texts: Sequence[str], such_as: str) -> dict[str, float]:
    """Return numbers by name. Raises InputError as `pairs` does, and for what is no number."""
    return {
        name: as_number(f"{option} {name}", value, float)
        for name, value in pairs(option, texts, such_as).items()
    }


def as_number(what: str, text: str, kind: Callable[[str], Number]) -> Number:
    """Return a number of a kind. Raises InputError that names `what`."""
    try:
        return kind(text)
    except ValueError:
        raise InputError(f"{what} is {text!r}, must be a number") from None
