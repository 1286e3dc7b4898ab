"""What goes wrong, and when: hosts that fail, replicas and links that are slow for a while."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import ClassVar

from simlora.core.checks import number, whole
from simlora.core.errors import InputError


class Incident:
    """Something that goes wrong with a host or a replica at `at_s`, and is over at `until_s`; None: never."""

    key: ClassVar[str]
    """Where a configuration lists incidents of this kind."""
    place: ClassVar[str]
    """The field that says where it happens: host or replica."""
    at_s: float
    until_s: float | None

    @property
    def of(self) -> int:
        """The number of the host or replica."""
        found: int = getattr(self, self.place)
        return found

    def __post_init__(self) -> None:
        whole(f"{self.place} of {self.key}", self.of, least=0)
        number(f"factor of {self.key}", getattr(self, "factor", 1.0), above=0)
        object.__setattr__(self, "at_s", number(f"at_s of {self.key}", self.at_s, "seconds", least=0))
        if self.until_s is not None:
            until_s = number(f"until_s of {self.key}", self.until_s, "seconds", above=self.at_s)
            object.__setattr__(self, "until_s", until_s)


@dataclass(frozen=True, kw_only=True)
class Failure(Incident):
    """A host fails, with its replicas and its memory, and is back, empty, at `until_s`."""

    key, place = "cluster.failures", "host"
    host: int
    at_s: float
    until_s: float | None = None


@dataclass(frozen=True, kw_only=True)
class Straggler(Incident):
    """Whatever a replica computes takes `factor` times as long.

    An iteration that is under way then goes on as it began.
    """

    key, place = "cluster.stragglers", "replica"
    replica: int
    at_s: float
    factor: float
    until_s: float | None = None


@dataclass(frozen=True, kw_only=True)
class SlowLink(Incident):
    """What goes over a host's PCIe and network takes `factor` times as long.

    A transfer that has been given to a link before goes on as it began.
    """

    key, place = "cluster.slow_links", "host"
    host: int
    at_s: float
    factor: float
    until_s: float | None = None


def check_incidents(incidents: Sequence[Incident], count: int) -> None:
    """Raise InputError unless each is at one of `count` hosts or replicas, and after the one before it there."""
    until_s: dict[int, float] = {}
    for each in sorted(incidents, key=lambda each: each.at_s):
        if each.of >= count:
            raise InputError(
                f"{each.key} has {each.place} {each.of}, must be one of the {count} {each.place}s, from 0 on"
            )
        if each.at_s < until_s.get(each.of, 0.0):
            raise InputError(
                f"{each.key} has {each.place} {each.of} at {each.at_s:g} s, when what began before is not over"
            )
        until_s[each.of] = inf if each.until_s is None else each.until_s
