"""Parts of a user's own, which every replica gets besides those of its system."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Iterator
from typing import Any

from simlora.config.making import partial_of
from simlora.config.reading import Tree
from simlora.core.checks import shown
from simlora.core.errors import InputError, nearest
from simlora.engine.replica.part import HOOKS, Part

EXAMPLE = "such as [my_module.MyPart] or [{_target_: my_module.MyPart, every_s: 10}]"


def own_parts(tree: Tree) -> tuple[Callable[..., Part], ...]:
    """Return what makes each part that the key `parts` lists, for a replica. Raises InputError for anything else."""
    listed = tree["parts"]
    if not isinstance(listed, list):
        raise InputError(f"parts is {shown(listed)}, must be a list, {EXAMPLE}")
    return tuple(_own_part(each, f"parts.{place}") for place, each in enumerate(listed))


def _own_part(value: Any, key: str) -> Callable[..., Part]:
    section = {"_target_": value} if isinstance(value, str) else value
    if not isinstance(section, dict):
        raise InputError(f"parts has {shown(value)}, must be a list, {EXAMPLE}")
    made = partial_of({key: section}, key)
    target = section["_target_"]
    if not (isinstance(made.func, type) and issubclass(made.func, Part)):
        raise InputError(f"parts has {target}, must be a subclass of {Part.__module__}.Part")
    for mistake in _mistakes(made.func):
        raise InputError(f"parts has {target}, whose {mistake}")
    try:
        inspect.signature(made.func).bind(None, *made.args, **made.keywords)
    except TypeError as error:
        raise InputError(f"parts has {target}, which cannot be made for a replica: {error}") from error
    return made


def _mistakes(kind: type[Part]) -> Iterator[str]:
    """Yield which methods of a part look like hooks and are none, and which hooks take other arguments."""
    known = [*HOOKS, "awaits", "steps", "next_s"]
    for name in sorted(set(dir(kind)) - set(dir(Part))):
        if name.startswith("on_") or difflib.get_close_matches(name, known, n=1, cutoff=0.8):
            yield f"method {name} is not a hook: {nearest(name, known)}"
    for name in known:
        arguments = inspect.signature(getattr(Part, name)).parameters
        try:
            inspect.signature(getattr(kind, name)).bind(*arguments)
        except TypeError:
            yield f"hook {name} cannot be called as {name}({', '.join(list(arguments)[1:])})"
    if kind.sample is not Part.sample:
        yield "hook sample is for simlora's own parts: the columns of the timeline are fixed"
