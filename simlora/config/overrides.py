"""Overrides as they are typed: what is too deep or too long for Hydra's parser is refused before it sees it."""

from __future__ import annotations

import re
from collections.abc import Iterable

import yaml

from simlora.core.checks import shown
from simlora.core.errors import InputError
from simlora.latency.yaml_text import DEEPEST, Refused, TreeLoader, too_long

DIGITS_MOST = 640
"""Digits of a number that Python reads whatever its limit is set to; a check of the key says which are too many."""
_NUMBER = re.compile(rf"[0-9](?:_?[0-9]){{{DIGITS_MOST},}}")


def check_overrides(overrides: Iterable[str]) -> None:
    """Raise InputError for the first override that Hydra's parser should not see, or would not refuse.

    One of too many levels, by brackets or dots; of a number too long; or of a mapping with a key that is there twice.
    """
    for override in overrides:
        key = override.partition("=")[0].lstrip("+~")
        name = key if len(key) <= 60 else shown(key)
        if key.count(".") >= DEEPEST or _levels(override) > DEEPEST:
            raise InputError(f"{name} has more than {DEEPEST} levels, must have fewer")
        number = _NUMBER.search(override)
        if number:
            digits = len(number[0].replace("_", ""))
            raise InputError(f"{name} {too_long(digits, DIGITS_MOST)}")
        if twice := _twice(override.partition("=")[2]):
            raise InputError(f"{name} {twice}")


def _twice(value: str) -> str:
    """Return what is said of a mapping with a key that is there twice, "" of any other value."""
    if "{" not in value:
        return ""
    try:
        yaml.load(value.replace(":", ": "), TreeLoader)  # noqa: S506  # a safe loader; Hydra needs no space there
    except Refused as error:
        return str(error.problem) if str(error.problem).endswith(" twice") else ""
    except (yaml.YAMLError, ValueError):
        pass  # Hydra's grammar has more than YAML's
    return ""


def _levels(text: str) -> int:
    """Return how deep brackets lie in each other, those of quoted text too."""
    level = deepest = 0
    for character in text:
        if character in "[{(":
            level += 1
            deepest = max(deepest, level)
        elif character in "]})":
            level = max(level - 1, 0)
    return deepest
