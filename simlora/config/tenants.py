"""Which tenants were promised what: SLO targets, and those of classes of adapters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simlora.core.checks import number, shown
from simlora.core.errors import InputError, nearest
from simlora.core.random import stream
from simlora.core.trace import AdapterSpec
from simlora.metrics.slo import TARGETS, SloClass, SloTargets

EXAMPLE = "such as [{name: gold, adapters: 'acme-*', ttft_s: 1}, {name: free, share: 0.8, ttft_s: 30}]"


def slo_targets(tree: Mapping[str, Any]) -> SloTargets:
    """Return the targets of the section `slo` for requests of no class; raises InputError for a bad one."""
    return replace(SloTargets(), **_limits("slo", tree))


def with_classes(targets: SloTargets, value: Any, adapters: Sequence[AdapterSpec], seed: int) -> SloTargets:
    """Return the targets with the classes that slo.classes lists, whose targets go before those of all requests.

    A class has the adapters whose names match a pattern, or one of several, and that no class before it has; or a
    `share` of all adapters, drawn from those that no pattern names. Raises InputError for anything else, and for a
    class that is left without any.
    """
    if not isinstance(value, list):
        raise InputError(f"slo.classes is {shown(value)}, must be a list, {EXAMPLE}")
    classes = {_name(each): each for each in value}
    if len(classes) < len(value):
        raise InputError(f"slo.classes has two classes of one name among {', '.join(map(_name, value))}")
    names = [adapter.name for adapter in adapters]
    left, owned = names, {}
    for name, each in classes.items():
        if "adapters" in each:
            patterns = [each["adapters"]] if isinstance(each["adapters"], str) else each["adapters"]
            owned[name] = {one for one in left if any(_matches(one, pattern) for pattern in patterns)}
            left = [one for one in left if one not in owned[name]]
    drawn = [left[place] for place in stream(seed, "tenants").permutation(len(left)).tolist()]
    for name, each in classes.items():
        if "share" in each:
            count = round(each["share"] * len(names))
            owned[name], drawn = set(drawn[:count]), drawn[count:]
        if not owned[name]:
            some = ", ".join(names[:3])
            raise InputError(
                f"slo.classes: {name} has none of the {len(names)} adapters, which are called {some}, …"
            )
    return replace(
        targets,
        classes=tuple(
            SloClass(name, frozenset(owned[name]), replace(targets, **_limits(f"slo.classes: {name}", each)))
            for name, each in classes.items()
        ),
    )


def ttft_targets_s(targets: SloTargets, adapters: Sequence[AdapterSpec]) -> NDArray[np.float64]:
    """Return the first-token target of each adapter and, last, the base model `[adapters + 1]`; inf: none."""
    of = {name: tenants.targets.ttft_s for tenants in targets.classes for name in tenants.adapters}
    found = [of.get(adapter.name, targets.ttft_s) for adapter in adapters]
    return np.array([np.inf if limit is None else limit for limit in (*found, targets.ttft_s)])


def _matches(name: str, pattern: Any) -> bool:
    """Whether a pattern names an adapter; white space around either does not count."""
    return fnmatchcase(name.strip(), str(pattern).strip())


def _name(each: Any) -> str:
    """Return the name of a class. Raises InputError for one that is not described as it must be."""
    known = ("name", "adapters", "share", *TARGETS)
    if not isinstance(each, Mapping) or "name" not in each or ("adapters" in each) == ("share" in each):
        raise InputError(
            f"slo.classes has {shown(each)}, must have a name and either adapters or share, {EXAMPLE}"
        )
    name = str(each["name"])
    for key in each:
        if key not in known:
            raise InputError(
                f"slo.classes: {name} has a key {key}, which there is not; {nearest(str(key), known)}"
            )
    if "share" in each:
        number(f"slo.classes: share of {name}", each["share"], "of the adapters", above=0, most=1)
    elif not isinstance(each["adapters"], str | list):
        raise InputError(
            f"slo.classes: adapters of {name} is {shown(each['adapters'])}, must be a pattern, {EXAMPLE}"
        )
    return name


def _limits(prefix: str, tree: Mapping[str, Any]) -> dict[str, Any]:
    limits = {name: tree[name] for name in TARGETS if name in tree}
    return {
        name: None if limit is None else number(f"{prefix}.{name}", limit, "seconds", above=0)
        for name, limit in limits.items()
    }
