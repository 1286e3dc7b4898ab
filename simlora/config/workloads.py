"""The workload of a configuration: what its sections name is looked at before any of it is called."""

from __future__ import annotations

from typing import Any

from simlora.config.making import located, make, with_target
from simlora.config.reading import Tree
from simlora.config.targets import targets
from simlora.core.errors import InputError
from simlora.workload.arrivals import Arrivals
from simlora.workload.lengths import Lengths
from simlora.workload.pairs import Pairs
from simlora.workload.popularity import Popularity

OURS = "simlora.workload."
BASES = (Arrivals, Lengths, Pairs, Popularity)
"""What a workload draws from."""


def workload(tree: Tree) -> Any:
    """Return the workload. Raises InputError for one that is none, and for sections below it that name something else.

    A class of the user's own needs build(seed), below `workload` a base class of BASES.
    """
    target = with_target(tree, "workload")["_target_"]
    for place, name in targets({"workload": tree["workload"]}):
        found = located(place, name)
        if place == "workload" and not (isinstance(found, type) and callable(getattr(found, "build", None))):
            raise InputError(f"workload._target_ is {target}, must have build(seed)")
        if place != "workload" and not _is_part(found):
            bases = ", ".join(f"{base.__module__}.{base.__qualname__}" for base in BASES)
            raise InputError(
                f"{place}._target_ is {name}, must be a class of {OURS[:-1]}, or a subclass of one of {bases}"
            )
    return make(tree, "workload", object)


def _is_part(found: Any) -> bool:
    return isinstance(found, type) and (found.__module__.startswith(OURS) or issubclass(found, BASES))
