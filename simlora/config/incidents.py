"""Failures, stragglers and slow links: listed with their times, or drawn by how often they happen."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, TypeVar

from simlora.config.reading import as_whole
from simlora.core.checks import number, shown
from simlora.core.errors import InputError
from simlora.core.random import stream
from simlora.engine.incidents import Failure, SlowLink, Straggler

Incident = TypeVar("Incident", Failure, Straggler, SlowLink)
STREAMS: Mapping[type, str] = {Failure: "faults", Straggler: "stragglers", SlowLink: "slow_links"}
MOST = 1_000_000


def incidents(
    key: str, value: Any, kind: type[Incident], count: int, seed: int, until_s: float
) -> tuple[Incident, ...]:
    """Return what goes wrong with the `count` hosts or replicas that a `kind` is of.

    An entry of the list `value` is one incident; or it has `every_s` and `for_s` instead of its target and times:
    then each host or replica is well for an exponential time of mean `every_s`, ill for one of mean `for_s`, and so
    on, and none begins after `until_s`. Each has draws of its own, from the seed's stream for that kind. Raises
    InputError for anything else.
    """
    names = [field.name for field in fields(kind)]
    whose = names[0]
    more: set[str] = {"factor"} & set(names)
    factor = ", factor: 2" if more else ""
    example = (
        f"such as [{{{whose}: 0, at_s: 60{factor}, until_s: 120}}] or [{{every_s: 3600, for_s: 60{factor}}}]"
    )
    if not isinstance(value, list):
        raise InputError(f"{key} is {shown(value)}, must be a list, {example}")
    found: list[Incident] = []
    for each in value:
        has = set(each) if isinstance(each, dict) else set()
        if has == {"every_s", "for_s", *more}:
            if sum("every_s" in other for other in value) > 1:
                raise InputError(f"{key} has two rates, must have one: each would draw for every {whose}")
            found += _drawn(key, each, kind, whose, count, seed, until_s)
        elif {whose, "at_s", *more} <= has <= set(names):
            found.append(kind(**(each | {whose: as_whole(each[whose])})))
        else:
            needed = ", ".join([whose, "at_s", *sorted(more)])
            raise InputError(f"{key} has {shown(each)}, must have {needed}, or rates, {example}")
    return tuple(found)


def _drawn(
    key: str,
    rates: Mapping[str, Any],
    kind: type[Incident],
    whose: str,
    count: int,
    seed: int,
    until_s: float,
) -> list[Incident]:
    every_s = number(f"{key}.every_s", rates["every_s"], "seconds", above=0)
    for_s = number(f"{key}.for_s", rates["for_s"], "seconds", above=0)
    if count * until_s / (every_s + for_s) > MOST:
        raise InputError(
            f"{key}.every_s is {every_s:g}, which is more than {MOST:,} times in {until_s:,.0f} s"
        )
    more = {name: rates[name] for name in ("factor",) if name in rates}
    found = []
    for id, rng in enumerate(stream(seed, STREAMS[kind]).spawn(count)):
        at_s = rng.exponential(every_s)
        while at_s < until_s:
            well_s = at_s + rng.exponential(for_s)
            found.append(kind(**{whose: id, "at_s": at_s, "until_s": well_s, **more}))
            at_s = well_s + rng.exponential(every_s)
    return found
