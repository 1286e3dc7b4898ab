"""Parts of a user's own, which every replica gets besides those of its system."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from simlora.config.making import partial_of
from simlora.config.reading import Tree
from simlora.core.checks import shown
from simlora.core.errors import InputError
from simlora.engine.replica.part import Part

EXAMPLE = "such as [my_module.MyPart] or [{_target_: my_module.MyPart, every_s: 10}]"


def own_parts(tree: Tree) -> tuple[Callable[..., Part], ...]:
    """Return what makes each part that the key `parts` lists, for a replica. Raises InputError for anything else."""
    listed = tree["parts"]
    if not isinstance(listed, list):
        raise InputError(f"parts is {shown(listed)}, must be a list, {EXAMPLE}")
    return tuple(_own_part(each) for each in listed)


def _own_part(value: Any) -> Callable[..., Part]:
    section = {"_target_": value} if isinstance(value, str) else value
    if not isinstance(section, dict):
        raise InputError(f"parts has {shown(value)}, must be a list, {EXAMPLE}")
    made = partial_of({"parts": section}, "parts")
    if not (isinstance(made.func, type) and issubclass(made.func, Part)):
        raise InputError(f"parts has {section['_target_']}, must be a subclass of {Part.__module__}.Part")
    return made
